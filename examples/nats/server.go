package main

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// newServer starts a server that does not listen by itself: it cannot be given a listener, but it takes connections
// of its own process.
func newServer() (*server.Server, error) {
	srv, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true})
	if err != nil {
		return nil, err
	}
	srv.Start()
	if !srv.ReadyForConnections(10 * time.Second) {
		srv.Shutdown()
		return nil, errors.New("the server does not start")
	}
	return srv, nil
}

// serve hands what l accepts to the server, until l is closed and the connections are over.
func serve(l net.Listener, srv *server.Server) error {
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
		inside, err := srv.InProcessConn()
		if err != nil {
			c.Close()
			continue // it shuts down
		}
		wg.Go(func() {
			defer inside.Close()
			io.Copy(inside, c)
		})
		wg.Go(func() {
			defer c.Close()
			io.Copy(c, inside)
		})
	}
}
