// Tls is a server that knows its clients by their certificates, over the SAN or over TCP.
//
//	go run ./examples/tls
//	SANNET_PROVIDERS=none go run ./examples/tls
package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"sansock/sannet"
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "tls:", err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	ca, err := newAuthority()
	if err != nil {
		return err
	}
	server, err := ca.server()
	if err != nil {
		return err
	}
	client, err := ca.client("alice")
	if err != nil {
		return err
	}
	l, err := sannet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	served := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			err = greet(tls.Server(c, server))
		}
		served <- err
	}()
	err = ask(out, l.Addr().String(), client)
	l.Close()
	return errors.Join(err, <-served)
}

// ask sends a question, and prints the answer.
func ask(out io.Writer, addr string, config *tls.Config) error {
	raw, err := sannet.Dial("tcp", addr)
	if err != nil {
		return err
	}
	c := tls.Client(raw, config)
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	info, _ := sannet.InfoOf(c)
	fmt.Fprintln(out, "path:", info)
	if _, err := io.WriteString(c, "who am I?"); err != nil {
		return err
	}
	if err := c.CloseWrite(); err != nil {
		return err
	}
	answer, err := io.ReadAll(c)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "answer: %s\n", answer)
	return nil
}

// greet reads a question to its end, and answers it.
func greet(c *tls.Conn) error {
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	question, err := io.ReadAll(c)
	if err != nil {
		return err
	}
	s := c.ConnectionState()
	_, err = fmt.Fprintf(c, "%q: you are %s, from %v, by %s", question, s.PeerCertificates[0].Subject.CommonName,
		c.RemoteAddr().(*net.TCPAddr).IP, tls.VersionName(s.Version))
	return err
}
