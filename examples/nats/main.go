// Nats is a NATS server and two clients of it, which publish, subscribe and ask, over the SAN or over TCP.
//
//	go run .
//	SANNET_PROVIDERS=none go run .
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"sansock/sannet"
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "nats:", err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	l, err := sannet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv, err := newServer()
	if err != nil {
		l.Close()
		return err
	}
	served := make(chan error, 1)
	go func() { served <- serve(l, srv) }()
	err = clients(out, l.Addr().String())
	l.Close()
	srv.Shutdown()
	srv.WaitForShutdown()
	return errors.Join(err, <-served)
}

// dialer is a nats.CustomDialer.
type dialer struct{ made func(net.Conn) }

func (d dialer) Dial(network, address string) (net.Conn, error) {
	c, err := sannet.DialTimeout(network, address, 10*time.Second)
	if err == nil {
		d.made(c)
	}
	return c, err
}

func connect(addr string, made func(net.Conn), more ...nats.Option) (*nats.Conn, error) {
	return nats.Connect("nats://"+addr, append(more, nats.SetCustomDialer(dialer{made}))...)
}

func clients(out io.Writer, addr string) error {
	made := func(c net.Conn) {
		info, _ := sannet.InfoOf(c)
		fmt.Fprintln(out, "path:", info)
	}
	service, err := connect(addr, made)
	if err != nil {
		return err
	}
	defer service.Close()
	_, err = service.Subscribe("greet", func(m *nats.Msg) { m.Respond(append([]byte("hello, "), m.Data...)) })
	if err != nil {
		return err
	}
	if err := service.Flush(); err != nil { // the server knows of it
		return err
	}
	client, err := connect(addr, made)
	if err != nil {
		return err
	}
	defer client.Close()
	const rounds = 1000
	start := time.Now()
	for range rounds {
		m, err := client.Request("greet", []byte("NATS"), time.Minute)
		if err != nil {
			return err
		}
		if string(m.Data) != "hello, NATS" {
			return fmt.Errorf("got %q", m.Data)
		}
	}
	fmt.Fprintf(out, "greet: hello, NATS, %d times, %v each\n", rounds, (time.Since(start) / rounds).Round(100*time.Nanosecond))
	return nil
}
