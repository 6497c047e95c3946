//go:build linux

package san

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"sansock/internal/probe"
	sanswitch "sansock/switch"
)

// Socket is a listener for TCP, of package net.
type Socket interface {
	AcceptTCP() (io.Closer, error)
	SyscallConn() syscall.RawConn
}

// Listener takes connections beside a socket that listens.
type Listener struct {
	p       *state
	key     groupKey
	socket  Socket
	inherit *probe.KeepAlive // what connections inherit of the socket

	mu        sync.Mutex
	g         *group    // nil: over TCP alone
	asked     time.Time // when the SAN was asked last, where its port was another's; zero: never again
	accepting bool      // a goroutine accepts over TCP
	closed    bool
	deadline  time.Time
	changed   chan struct{} // closed, and replaced, when deadline is set
	done      chan struct{} // closed by Close

	tcp chan arrival
}

// arrival is what was accepted over TCP.
type arrival struct {
	c   io.Closer
	err error
}

// again is how soon a port that another process had on the SAN is tried again: once it has gone this one takes over.
const again = time.Second

// Listen listens on the SAN at addr, beside the socket. It returns nil where there is no SAN for it, and syscall.EADDRINUSE where
// another process has the port there; the Listener is one for TCP alone then, until the port is free. look says that the options of the socket may not be those that net
// sets.
func Listen(network string, addr netip.AddrPort, socket Socket, six, look bool) (*Listener, error) {
	p := process()
	if p.off {
		p.note("listen", addr, netip.AddrPort{}, sanswitch.Route{Path: sanswitch.PathTCP, Reason: sanswitch.ReasonDisabled})
		return nil, nil
	}
	l := &Listener{p: p, key: groupKey{network, addr}, socket: socket}
	if look {
		ch, err := probe.Listener(socket.SyscallConn(), six)
		if err == nil && ch.Option != "" {
			err = errors.New(ch.Option)
		}
		if err != nil {
			r := sanswitch.Route{Path: sanswitch.PathTCP, Reason: sanswitch.ReasonControl, Err: err}
			p.note("listen", addr, netip.AddrPort{}, r)
			return nil, nil
		}
		l.inherit = ch.KeepAlive
	}
	g, route, err := p.join(l.key)
	p.note("listen", addr, netip.AddrPort{}, route)
	if g == nil && err == nil {
		return nil, nil
	}
	l.g = g
	if g == nil {
		l.asked = time.Now()
	}
	l.changed, l.done, l.tcp = make(chan struct{}), make(chan struct{}), make(chan arrival)
	return l, err
}

// Accept waits for the next connection, of either path.
func (l *Listener) Accept() (*Conn, io.Closer, error) {
	for {
		l.mu.Lock()
		g, at, changed := l.g, l.deadline, l.changed
		plain := g == nil && !l.accepting
		if !plain && !l.accepting && !l.closed {
			l.accepting = true
			go l.acceptTCP()
		}
		closed := l.closed
		l.mu.Unlock()
		if closed {
			return nil, nil, errClosed
		}
		if plain {
			c, err := l.socket.AcceptTCP()
			l.retry()
			return nil, c, err
		}
		c, tcp, err, ok := l.wait(g, at, changed)
		if ok {
			return c, tcp, err
		}
	}
}

// wait is one round of Accept; ok tells that it has come to something.
func (l *Listener) wait(g *group, at time.Time, changed <-chan struct{}) (c *Conn, tcp io.Closer, err error, ok bool) {
	var arrivals <-chan sanswitch.Result
	var over <-chan struct{}
	if g != nil {
		arrivals, over = g.arrivals, g.over
	}
	var late <-chan time.Time
	if !at.IsZero() {
		d := time.Until(at)
		if d <= 0 {
			return nil, nil, os.ErrDeadlineExceeded, true
		}
		t := time.NewTimer(d)
		defer t.Stop()
		late = t.C
	}
	select {
	case r := <-arrivals:
		c := newConn(r, l.inherit)
		l.p.note("accept", c.Local, c.Remote, r.Route)
		return c, nil, nil, true
	case a := <-l.tcp:
		return nil, a.c, a.err, true
	case <-over:
		l.mu.Lock()
		if l.g == g {
			l.g = nil // it was drained, and is empty
		}
		l.mu.Unlock()
	case <-changed:
	case <-late:
	case <-l.done:
	}
	return nil, nil, nil, false
}

// acceptTCP accepts one connection over TCP, for the call of Accept that waits, or the next one. So nothing is taken from the kernel
// before the program asks: what waits there may be for another process that has the socket.
func (l *Listener) acceptTCP() {
	for {
		c, err := l.socket.AcceptTCP()
		if errors.Is(err, os.ErrDeadlineExceeded) && l.again() {
			continue
		}
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			select {
			case l.tcp <- arrival{c, err}:
			case <-l.done:
				if err == nil {
					c.Close()
				}
			}
			l.mu.Lock()
			l.accepting = false
			l.mu.Unlock()
		}
		return
	}
}

// again reports whether the deadline has been moved; otherwise nobody accepts over TCP from here on.
func (l *Listener) again() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.deadline.IsZero() || time.Until(l.deadline) > 0 {
		return true
	}
	l.accepting = false
	return false
}

// retry joins the SAN if its port has become free.
func (l *Listener) retry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.g != nil || l.closed || l.asked.IsZero() || time.Since(l.asked) < again {
		return
	}
	l.asked = time.Now()
	if g, route, _ := l.p.join(l.key); g != nil {
		l.g = g
		l.p.note("listen", l.key.addr, netip.AddrPort{}, route)
	}
}

// Leave takes the listener off the SAN, but for what has arrived, as another process is to have the socket.
func (l *Listener) Leave() {
	l.mu.Lock()
	g := l.g
	l.asked = time.Time{}
	l.mu.Unlock()
	if g != nil {
		g.drain()
	}
}

// SetDeadline bounds Accept. The socket's deadline has been set before.
func (l *Listener) SetDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed
	}
	l.deadline = t
	close(l.changed)
	l.changed = make(chan struct{})
	return nil
}

// Close ends listening. The socket is closed afterwards.
func (l *Listener) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	close(l.done)
	if l.g != nil {
		l.g.leave()
	}
}
