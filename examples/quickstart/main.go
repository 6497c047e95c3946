// Quickstart runs an echo and a file transfer over sannet in one process, and prints which path the
// connections took and why.
//
//	go run ./examples/quickstart
//	go run ./examples/quickstart -net san -size 1000000000
//	SANNET_PROVIDERS=none go run ./examples/quickstart
package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"sansock/sannet"
)

func main() {
	network := flag.String("net", "tcp", "`network`: tcp takes the SAN where it can, san takes it or fails")
	size := flag.Int64("size", 16<<20, "size of the file in `bytes`")
	flag.Parse()
	switch {
	case flag.NArg() > 0:
		usage("unexpected argument %q", flag.Arg(0))
	case *network != "tcp" && *network != "san":
		usage("-net must be tcp or san, not %q", *network)
	case *size < 0:
		usage("-size must not be negative")
	}
	if err := run(*network, *size); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func usage(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "quickstart: "+format+"\n", args...)
	flag.Usage()
	os.Exit(2)
}

func run(network string, size int64) error {
	if err := echo(network); err != nil {
		return fmt.Errorf("echo: %w", err)
	}
	if err := transfer(network, size); err != nil {
		return fmt.Errorf("file: %w", err)
	}
	return nil
}

// connect listens, dials, and returns both ends of the connection.
func connect(network string) (client, server net.Conn, err error) {
	l, err := sannet.Listen(network, "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	client, err = sannet.Dial(network, l.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	server, err = l.Accept()
	if err != nil {
		client.Close()
		return nil, nil, err
	}
	return client, server, nil
}

func echo(network string) error {
	client, server, err := connect(network)
	if err != nil {
		return err
	}
	defer client.Close()
	go func() {
		defer server.Close()
		io.Copy(server, server)
	}()
	info, _ := sannet.InfoOf(client)
	fmt.Printf("path:  %v\n", info)

	const rounds = 10_000
	sent := []byte("hello, SAN")
	got := make([]byte, len(sent))
	start := time.Now()
	for range rounds {
		if _, err := client.Write(sent); err != nil {
			return err
		}
		if _, err := io.ReadFull(client, got); err != nil {
			return err
		}
		if !bytes.Equal(got, sent) {
			return fmt.Errorf("sent %q, got %q", sent, got)
		}
	}
	fmt.Printf("echo:  %q, %d times, %v each\n", got, rounds, (time.Since(start) / rounds).Round(10*time.Nanosecond))
	return nil
}

// transfer sends a file from one temporary file to another.
func transfer(network string, size int64) error {
	from, err := tempFile()
	if err != nil {
		return err
	}
	defer from.remove()
	to, err := tempFile()
	if err != nil {
		return err
	}
	defer to.remove()
	if _, err := io.CopyN(from, rand.NewChaCha8([32]byte{}), size); err != nil {
		return err
	}

	client, server, err := connect(network)
	if err != nil {
		return err
	}
	defer client.Close()
	sent := make(chan error, 1)
	start := time.Now()
	go func() {
		_, err := from.Seek(0, io.SeekStart)
		if err == nil {
			_, err = io.Copy(server, from)
		}
		sent <- errors.Join(err, server.Close())
	}()
	n, err := io.Copy(to, client)
	if err := errors.Join(err, <-sent); err != nil {
		return err
	}
	took := time.Since(start)
	want, err := from.sum()
	if err != nil {
		return err
	}
	got, err := to.sum()
	if err != nil {
		return err
	}
	if n != size || want != got {
		return fmt.Errorf("sent %d bytes with sum %x, got %d with sum %x", size, want, n, got)
	}
	fmt.Printf("file:  %d bytes in %v, sha256 %.8x verified\n", n, took.Round(time.Microsecond), got)
	return nil
}

type file struct{ *os.File }

func tempFile() (file, error) {
	f, err := os.CreateTemp("", "quickstart")
	return file{f}, err
}

func (f file) remove() {
	f.Close()
	os.Remove(f.Name())
}

func (f file) sum() (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return sum, err
	}
	if _, err := io.Copy(h, f); err != nil {
		return sum, err
	}
	h.Sum(sum[:0])
	return sum, nil
}
