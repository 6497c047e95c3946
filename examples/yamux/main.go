// Yamux carries many streams over one connection, with hashicorp/yamux, over the SAN or over TCP.
//
//	go run .
//	SANNET_PROVIDERS=none go run .
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"sansock/sannet"
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "yamux:", err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	l, err := sannet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	c, err := sannet.Dial("tcp", l.Addr().String())
	if err != nil {
		return err
	}
	defer c.Close()
	info, _ := sannet.InfoOf(c)
	fmt.Fprintln(out, "path:", info)
	sc, err := l.Accept()
	if err != nil {
		return err
	}
	server, err := yamux.Server(sc, config())
	if err != nil {
		sc.Close()
		return err
	}
	var served sync.WaitGroup
	served.Go(func() { echo(server) })
	defer served.Wait()
	defer server.Close()
	client, err := yamux.Client(c, config())
	if err != nil {
		return err
	}
	defer client.Close()

	const streams, size = 20, 1 << 20
	start := time.Now()
	errs := make(chan error, streams)
	for i := range streams {
		go func() { errs <- exchange(client, bytes.Repeat([]byte{byte(i)}, size)) }()
	}
	for range streams {
		err = errors.Join(err, <-errs)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d streams: %d bytes each, there and back in %v\n", streams, size, time.Since(start).Round(time.Microsecond))
	return nil
}

// config is the default without a log.
func config() *yamux.Config {
	c := yamux.DefaultConfig()
	c.LogOutput = io.Discard
	return c
}

// echo sends back what comes on each stream, until the session is over.
func echo(s *yamux.Session) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		st, err := s.AcceptStream()
		if err != nil {
			return
		}
		wg.Go(func() {
			defer st.Close()
			io.Copy(st, st)
		})
	}
}

// exchange sends data on a stream of its own, and wants it back.
func exchange(s *yamux.Session, data []byte) error {
	st, err := s.OpenStream()
	if err != nil {
		return err
	}
	defer st.Close()
	st.SetDeadline(time.Now().Add(time.Minute))
	sent := make(chan error, 1)
	go func() {
		_, err := st.Write(data)
		sent <- err
	}()
	got := make([]byte, len(data))
	if _, err := io.ReadFull(st, got); err != nil {
		return err
	}
	if !bytes.Equal(got, data) {
		return errors.New("the answer differs")
	}
	return <-sent
}
