package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"golang.org/x/crypto/ssh"
)

func newKey() (ssh.Signer, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	return ssh.NewSignerFromKey(key)
}

// serverConfig lets in who has the key.
func serverConfig(host ssh.Signer, user ssh.PublicKey) *ssh.ServerConfig {
	config := &ssh.ServerConfig{
		PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if !bytes.Equal(key.Marshal(), user.Marshal()) {
				return nil, errors.New("unknown key")
			}
			return nil, nil
		},
	}
	config.AddHostKey(host)
	return config
}

// serve serves until the listener is closed and the connections are over.
func serve(l net.Listener, config *ssh.ServerConfig) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		wg.Go(func() {
			defer c.Close()
			sc, channels, requests, err := ssh.NewServerConn(c, config)
			if err != nil {
				return // a stranger
			}
			wg.Go(func() { ssh.DiscardRequests(requests) })
			for nc := range channels {
				if nc.ChannelType() != "session" {
					nc.Reject(ssh.UnknownChannelType, "only sessions")
					continue
				}
				ch, requests, err := nc.Accept()
				if err != nil {
					return
				}
				wg.Go(func() { session(sc, ch, requests) })
			}
		})
	}
}

// session runs one command.
func session(sc *ssh.ServerConn, ch ssh.Channel, requests <-chan *ssh.Request) {
	defer ch.Close()
	for r := range requests {
		var command struct{ Text string }
		if r.Type != "exec" || ssh.Unmarshal(r.Payload, &command) != nil {
			r.Reply(false, nil)
			continue
		}
		r.Reply(true, nil)
		go ssh.DiscardRequests(requests)
		var status struct{ Code uint32 }
		switch command.Text {
		case "whoami":
			fmt.Fprintln(ch, sc.User())
		case "cat":
			io.Copy(ch, ch)
		default:
			fmt.Fprintf(ch.Stderr(), "%s: not found\n", command.Text)
			status.Code = 127
		}
		ch.SendRequest("exit-status", false, ssh.Marshal(status))
		return
	}
}
