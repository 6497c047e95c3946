//go:build unix

package main

import (
	"errors"
	"net"
	"net/http"
	"sync"

	"sansock/sannet"
)

// server is an http.Server whose connections can go on in another process.
type server struct {
	http *http.Server
	l    *sannet.Listener
	in   chan net.Conn // accepted, or received from the process before
	errs chan error    // of Accept

	served   chan struct{} // closed when nothing is accepted any more
	received chan struct{} // closed when the process before has handed over everything

	mu    sync.Mutex
	conns map[*conn]bool
	pass  func(net.Conn) error // hands a connection over; nil as long as this process is to serve
	gone  chan struct{}        // has a token when a connection has gone
}

func newServer(l *sannet.Listener, h http.Handler) *server {
	s := &server{l: l, in: make(chan net.Conn), errs: make(chan error),
		served: make(chan struct{}), received: make(chan struct{}),
		conns: make(map[*conn]bool), gone: make(chan struct{}, 1)}
	s.http = &http.Server{Handler: h, ConnState: func(c net.Conn, state http.ConnState) {
		if state == http.StateIdle {
			c.(*conn).answered()
		}
	}}
	return s
}

// serve serves what is accepted, and what comes from the process before.
func (s *server) serve() error {
	defer close(s.served)
	go func() {
		for {
			c, err := s.l.Accept()
			if err == nil {
				s.in <- c
				continue
			}
			s.errs <- err
			if errors.Is(err, net.ErrClosed) {
				return
			}
		}
	}()
	err := s.http.Serve(front{s.l, s})
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// front is the listener of the http.Server.
type front struct {
	net.Listener
	s *server
}

func (f front) Accept() (net.Conn, error) {
	select {
	case c := <-f.s.in:
		return f.s.add(c), nil
	case err := <-f.s.errs:
		return nil, err
	}
}

// add makes a connection one that can be handed over. While the process is being replaced that happens at once.
func (s *server) add(nc net.Conn) *conn {
	c := newConn(nc, s)
	s.mu.Lock()
	s.conns[c] = true
	pass := s.pass
	s.mu.Unlock()
	if pass != nil {
		go c.move(pass)
	}
	return c
}

// remove forgets a connection that is closed, or has moved.
func (s *server) remove(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	select {
	case s.gone <- struct{}{}:
	default:
	}
}

// leave has every connection move as soon as it can.
func (s *server) leave(pass func(net.Conn) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass = pass
	for c := range s.conns {
		go c.move(pass)
	}
}

// left is how many connections are still here.
func (s *server) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}
