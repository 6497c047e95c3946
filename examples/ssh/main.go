// Ssh is an SSH server and its client, over the SAN or over TCP.
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

	"golang.org/x/crypto/ssh"

	"sansock/sannet"
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "ssh:", err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	hostKey, err := newKey()
	if err != nil {
		return err
	}
	userKey, err := newKey()
	if err != nil {
		return err
	}
	l, err := sannet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- serve(l, serverConfig(hostKey, userKey.PublicKey())) }()
	err = client(out, l.Addr().String(), &ssh.ClientConfig{
		User:            "alice",
		Auth:            []ssh.AuthMethod{ssh.PublicKeys(userKey)},
		HostKeyCallback: ssh.FixedHostKey(hostKey.PublicKey()),
	})
	return errors.Join(err, l.Close(), <-served)
}

// dial is ssh.Dial by way of sannet.
func dial(addr string, config *ssh.ClientConfig) (*ssh.Client, sannet.Info, error) {
	c, err := sannet.Dial("tcp", addr)
	if err != nil {
		return nil, sannet.Info{}, err
	}
	info, _ := sannet.InfoOf(c)
	sc, channels, requests, err := ssh.NewClientConn(c, addr, config)
	if err != nil {
		c.Close()
		return nil, info, err
	}
	return ssh.NewClient(sc, channels, requests), info, nil
}

func client(out io.Writer, addr string, config *ssh.ClientConfig) error {
	c, info, err := dial(addr, config)
	if err != nil {
		return err
	}
	defer c.Close()
	fmt.Fprintln(out, "path:", info)

	s, err := c.NewSession()
	if err != nil {
		return err
	}
	answer, err := s.Output("whoami")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "whoami: %s", answer)

	if s, err = c.NewSession(); err != nil {
		return err
	}
	sent := bytes.Repeat([]byte("0123456789"), 100_000)
	s.Stdin = bytes.NewReader(sent)
	got, err := s.Output("cat")
	if err != nil {
		return err
	}
	if !bytes.Equal(got, sent) {
		return errors.New("cat: the answer differs")
	}
	fmt.Fprintln(out, "cat:", len(got), "bytes there and back")
	return nil
}
