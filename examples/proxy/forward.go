package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"sansock/sannet"
)

// forward is a pair of flags.
type forward struct{ from, to endpoint }

// listen and dial are all that there is of sannet in the program.
func (e endpoint) listen(ctx context.Context) (net.Listener, error) {
	switch e.kind {
	case "tcp":
		return new(net.ListenConfig).Listen(ctx, "tcp", e.address)
	case "san":
		return new(sannet.ListenConfig).Listen(ctx, "san", e.address)
	}
	return new(sannet.ListenConfig).Listen(ctx, "tcp", e.address)
}

func (e endpoint) dial(ctx context.Context) (net.Conn, error) {
	switch e.kind {
	case "tcp":
		return new(net.Dialer).DialContext(ctx, "tcp", e.address)
	case "san":
		return sannet.DialContext(ctx, "san", e.address)
	}
	return sannet.DialContext(ctx, "tcp", e.address)
}

// pathOf describes a connection's path.
func pathOf(c net.Conn) string {
	if info, ok := sannet.InfoOf(c); ok {
		return info.String()
	}
	return "tcp: plain"
}

// server is the proxy while it runs.
type server struct {
	timeout time.Duration
	hard    context.Context // its end aborts every connection
	conns   sync.WaitGroup
	number  atomic.Int64 // of the last connection
	open    atomic.Int64

	mu          sync.Mutex // guards out and errs, so that lines stay whole
	out, errOut io.Writer
}

// run forwards until ctx ends, and then until the connections did, or the time for it is over.
func run(ctx context.Context, o options, out, errOut io.Writer) error {
	hard, abortAll := context.WithCancel(context.Background())
	defer abortAll()
	s := &server{timeout: o.timeout, hard: hard, out: out, errOut: errOut}
	var listeners []net.Listener
	closeAll := func() {
		for _, l := range listeners {
			l.Close()
		}
	}
	for _, f := range o.forwards {
		l, err := f.from.listen(ctx)
		if err != nil {
			closeAll()
			return err
		}
		listeners = append(listeners, l)
	}
	accepting, stopAccepting := context.WithCancel(ctx)
	defer stopAccepting()
	ended := make(chan error, len(listeners))
	for i, l := range listeners {
		s.say("forwarding %s:%v to %v", o.forwards[i].from.kind, l.Addr(), o.forwards[i].to)
		go func() {
			ended <- s.accept(accepting, l, o.forwards[i].to)
			stopAccepting() // one that fails ends all
		}()
	}
	<-accepting.Done()
	closeAll()
	var errs []error
	for range listeners {
		errs = append(errs, <-ended)
	}
	if n := s.open.Load(); n > 0 {
		s.say("draining %d connections for %v at most", n, o.drain)
	}
	cut := time.AfterFunc(o.drain, func() {
		if n := s.open.Load(); n > 0 {
			s.warn("aborting %d connections that did not finish in %v", n, o.drain)
		}
		abortAll()
	})
	defer cut.Stop()
	s.conns.Wait()
	s.say("forwarded %d connections", s.number.Load())
	return errors.Join(errs...)
}

// accept forwards what l accepts until ctx ends.
func (s *server) accept(ctx context.Context, l net.Listener, to endpoint) error {
	const least, most = 5 * time.Millisecond, time.Second
	pause := least
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			pause = least
			s.open.Add(1)
			s.conns.Go(func() {
				defer s.open.Add(-1)
				s.forward(c, to)
			})
		case ctx.Err() != nil:
			return nil
		case isTemporary(err):
			// Such as too many open files: the clients wait meanwhile.
			s.warn("%v, trying again in %v", err, pause)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			pause = min(2*pause, most)
		default:
			return err
		}
	}
}

func isTemporary(err error) bool {
	t, ok := err.(interface{ Temporary() bool })
	return ok && t.Temporary()
}

// forward connects a client on.
func (s *server) forward(client net.Conn, to endpoint) {
	n := s.number.Add(1)
	ctx, cancel := context.WithTimeout(s.hard, s.timeout)
	target, err := to.dial(ctx)
	cancel()
	if err != nil {
		s.warn("%d: %v to %v: %v", n, client.RemoteAddr(), to, err)
		abort(client) // who was not served sees an error, rather than an empty answer
		return
	}
	s.say("%d: from %v over %s, to %v over %s", n, client.RemoteAddr(), pathOf(client), target.RemoteAddr(), pathOf(target))
	start := time.Now()
	stop := context.AfterFunc(s.hard, func() {
		abort(client)
		abort(target)
	})
	r := join(client, target)
	stop()
	s.say("%d: %d bytes to %v, %d back, %v, %s", n, r.sent, to, r.received, time.Since(start).Round(time.Millisecond), r.end())
}

func (s *server) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, format+"\n", args...)
}

func (s *server) warn(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.errOut, "proxy: "+format+"\n", args...)
}
