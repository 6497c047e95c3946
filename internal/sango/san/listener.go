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
	waiting   int       // calls of Accept
	closed    bool
	deadline  time.Time
	changed   chan struct{} // closed, and replaced, when deadline is set
	done      chan struct{} // closed by Close

	tcp chan arrival
}

// arrival is what was accepted over TCP.
type arrival struct {
	c     io.Closer
	err   error
	taken chan struct{} // closed when the call of Accept that has it does not count as one that waits
}

// again is how soon a port that another process had on the SAN is tried again: once it has gone
// this one takes over.
const again = time.Second

// Listen listens on the SAN at addr, beside the socket. It returns nil where there is no SAN for
// it, and syscall.EADDRINUSE where another process has the port there; the Listener is one for
// TCP alone then, until the port is free. look says that the options of the socket may not be
// those that net sets.
func Listen(network string, addr netip.AddrPort, socket Socket, six, look bool) (*Listener, error) {
	p := process()
	if p.off {
		off := sanswitch.Route{Path: sanswitch.PathTCP, Reason: sanswitch.ReasonDisabled}
		p.note("listen", addr, netip.AddrPort{}, off)
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
	l.mu.Lock()
	if l.g == nil && !l.accepting {
		l.mu.Unlock()
		c, err := l.socket.AcceptTCP()
		l.retry()
		return nil, c, err
	}
	l.waiting++
	l.mu.Unlock()
	c, a := l.accept()
	l.mu.Lock()
	l.waiting--
	l.mu.Unlock()
	if a.taken != nil {
		close(a.taken)
	}
	return c, a.c, a.err
}

// accept is Accept of a listener that is on the SAN, or was.
func (l *Listener) accept() (*Conn, arrival) {
	for {
		l.mu.Lock()
		g, at, changed, closed := l.g, l.deadline, l.changed, l.closed
		if !l.accepting && !closed {
			l.accepting = true
			go l.acceptTCP()
		}
		l.mu.Unlock()
		if closed {
			return nil, arrival{err: errClosed}
		}
		if c, a, ok := l.wait(g, at, changed); ok {
			return c, a
		}
	}
}

// wait is one round of accept; ok tells that it has come to something.
func (l *Listener) wait(g *group, at time.Time, changed <-chan struct{}) (c *Conn, a arrival, ok bool) {
	var arrivals <-chan sanswitch.Result
	var over <-chan struct{}
	if g != nil {
		arrivals, over = g.arrivals, g.over
	}
	var late <-chan time.Time
	if !at.IsZero() {
		d := time.Until(at)
		if d <= 0 {
			return nil, arrival{err: os.ErrDeadlineExceeded}, true
		}
		t := time.NewTimer(d)
		defer t.Stop()
		late = t.C
	}
	select {
	case r := <-arrivals:
		c := newConn(r, l.inherit)
		l.p.note("accept", c.Local, c.Remote, r.Route)
		return c, arrival{}, true
	case a := <-l.tcp:
		return nil, a, true
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
	return nil, arrival{}, false
}

// acceptTCP accepts connections over TCP while calls of Accept wait. So no more than one is taken
// from the kernel before the program asks: what waits there may be for another process that has
// the socket.
func (l *Listener) acceptTCP() {
	for {
		c, err := l.socket.AcceptTCP()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if l.again() {
				continue
			}
			return
		}
		a := arrival{c, err, make(chan struct{})}
		select {
		case l.tcp <- a:
			<-a.taken
		case <-l.done:
			if err == nil {
				c.Close()
			}
			return
		}
		l.mu.Lock()
		l.accepting = l.waiting > 0
		over := !l.accepting
		l.mu.Unlock()
		if over {
			return
		}
	}
}

// again reports whether the deadline has been moved; otherwise nobody accepts over TCP from here
// on.
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

// Leave takes the listener off the SAN, but for what has arrived, as another process is to have
// the socket.
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
