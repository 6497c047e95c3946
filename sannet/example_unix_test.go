//go:build unix

package sannet_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"sansock/sannet"
)

// A server gives its connections to the process that replaces it, through a unix socket: here both are one.
func ExampleSendConn() {
	old, next := unixPair()
	defer old.Close()
	defer next.Close()
	l, err := sannet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	client, err := sannet.Dial("tcp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	c, err := l.Accept()
	if err != nil {
		log.Fatal(err)
	}
	sent := make(chan error)
	go func() { sent <- sannet.SendConn(context.Background(), old, c) }()

	got, err := sannet.ReceiveConn(context.Background(), next)
	if err != nil {
		log.Fatal(err)
	}
	if err := <-sent; err != nil {
		log.Fatal(err)
	}
	fmt.Fprint(got, "from the new process")
	got.Close()
	io.Copy(os.Stdout, client)
	// Output: from the new process
}

// unixPair is a connection of two processes.
func unixPair() (a, b *net.UnixConn) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		log.Fatal(err)
	}
	for i, to := range []**net.UnixConn{&a, &b} {
		f := os.NewFile(uintptr(fds[i]), "pair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			log.Fatal(err)
		}
		*to = c.(*net.UnixConn)
	}
	return a, b
}

// A listener goes on in the process that inherits the file of its TCP socket, over TCP and SANs: here in the same one.
func ExampleFileListener() {
	l, err := sannet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*sannet.Listener).TCPFile()
	if err != nil {
		log.Fatal(err)
	}
	l.(*sannet.Listener).Drain() // what has arrived is still accepted here

	next, err := sannet.FileListener(f)
	if err != nil {
		log.Fatal(err)
	}
	defer next.Close()
	f.Close()
	c, err := sannet.Dial("tcp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	info, _ := sannet.InfoOf(c)
	fmt.Println(info)
	// Output: san via emu
}

// Memory that is not Go's stays registered between transfers where a program says when it goes away.
func ExampleWatchMemory() {
	mapped, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		log.Fatal(err)
	}
	defer unix.Munmap(mapped)
	stop := sannet.WatchMemory(mapped)
	defer stop() // before it is unmapped

	l, err := sannet.Listen("san", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := sannet.Dial("san", l.Addr().String())
		if err != nil {
			log.Fatal(err)
		}
		defer c.Close()
		for range 3 {
			c.Write(mapped)
		}
	}()
	c, err := l.Accept()
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Println(io.Copy(io.Discard, c))
	// Output: 3145728 <nil>
}
