package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"sansock/sannet"
)

// carrier is a way to reach a server.
type carrier struct {
	name string
	dial func(context.Context) (net.Conn, error)
}

// descriptors is how many a connection takes at each end.
func (c carrier) descriptors() int {
	if c.name == "tcp" || c.name == "unix" {
		return 1
	}
	return 0
}

// addresses are where a server listens, for the carriers that reach it from another process.
type addresses struct {
	TCP, Unix, Sannet string
}

// carriers are the ways to a server on this host, except for those that do not leave a process. The network is what sannet dials.
func (a addresses) carriers(network string) []carrier {
	var d net.Dialer
	return []carrier{
		{"tcp", func(ctx context.Context) (net.Conn, error) { return d.DialContext(ctx, "tcp", a.TCP) }},
		{"unix", func(ctx context.Context) (net.Conn, error) { return d.DialContext(ctx, "unix", a.Unix) }},
		{"sannet", func(ctx context.Context) (net.Conn, error) { return sannet.DialContext(ctx, network, a.Sannet) }},
	}
}

// listenLocal makes s listen for every carrier of addresses, with the unix socket in dir.
func listenLocal(s *server, dir string) (a addresses, err error) {
	for _, l := range []struct {
		addr    *string
		listen  func(network, address string) (net.Listener, error)
		network string
		address string
	}{
		{&a.TCP, net.Listen, "tcp", "127.0.0.1:0"},
		{&a.Unix, net.Listen, "unix", filepath.Join(dir, "s")},
		{&a.Sannet, sannet.Listen, "tcp", "127.0.0.1:0"},
	} {
		ln, err := l.listen(l.network, l.address)
		if err != nil {
			return a, err
		}
		*l.addr = ln.Addr().String()
		s.serve(ln)
	}
	return a, nil
}

// oneProcess returns a rig whose server is in this process.
func oneProcess(_ context.Context, network string) (*rig, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	s := newServer()
	stop := func() { s.close(); os.RemoveAll(dir) }
	a, err := listenLocal(s, dir)
	if err != nil {
		stop()
		return nil, fmt.Errorf("server in this process: %w", err)
	}
	pipes, buffered := newLocalListener(net.Pipe), newLocalListener(newBuffered)
	s.serve(pipes)
	s.serve(buffered)
	return &rig{
		mode:     modeOne,
		title:    "one process",
		carriers: append(a.carriers(network), carrier{"pipe", pipes.dial}, carrier{"buffered", buffered.dial}),
		local:    s,
		stop:     stop,
	}, nil
}

// pathOf says which way a connection went.
func pathOf(c net.Conn) string {
	if info, ok := sannet.InfoOf(c); ok {
		return info.String()
	}
	return c.LocalAddr().Network()
}

// queue is a listener that accepts the connections put into it.
type queue struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newQueue() *queue { return &queue{conns: make(chan net.Conn), closed: make(chan struct{})} }

// put reports whether c was accepted, and not the queue closed.
func (q *queue) put(c net.Conn) bool {
	select {
	case q.conns <- c:
		return true
	case <-q.closed:
		return false
	}
}

func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

func (q *queue) Close() error {
	q.once.Do(func() { close(q.closed) })
	return nil
}

func (q *queue) Addr() net.Addr { return localAddr("queue") }

// localAddr is the address of what does not leave a process.
type localAddr string

func (a localAddr) Network() string { return string(a) }
func (a localAddr) String() string  { return string(a) }

// localListener accepts one end of a pair for every dial of the other.
type localListener struct {
	*queue
	pair func() (client, server net.Conn)
}

func newLocalListener(pair func() (client, server net.Conn)) localListener {
	return localListener{newQueue(), pair}
}

func (l localListener) dial(context.Context) (net.Conn, error) {
	client, server := l.pair()
	if !l.put(server) {
		return nil, errors.New("dial within the process: connection refused")
	}
	return client, nil
}
