package sanswitch

import (
	"context"
	"errors"
	"net"
	"time"
)

// TCP returns the listener for TCP, or for a network of net's; nil if there is none.
func (l *Listener) TCP() net.Listener { return l.ln }

// Drain stops listening, but for the connections that have arrived, or are being set up: Accept returns these, and then
// an error that is net.ErrClosed. On a SAN who dials meanwhile is sent to TCP, so that nothing is refused where another
// process has a copy of the TCP socket. (What a provider has queued in the moment in which its listener closes is
// refused by it; what is still in the TCP socket is left to who has a copy, or else reset. A listener that was adopted and has
// no SetDeadline is closed at once.) Draining again does nothing.
func (l *Listener) Drain() error {
	if len(l.sans) == 0 {
		if l.draining.Swap(true) {
			return nil
		}
		return l.ln.Close() // a connection is accepted, or is not; nothing is between
	}
	if l.ctx.Err() != nil {
		return l.opError("close", net.ErrClosed)
	}
	if l.draining.Swap(true) {
		return nil
	}
	closeAll(l.sans)
	if d, ok := l.ln.(interface{ SetDeadline(time.Time) error }); ok {
		d.SetDeadline(time.Unix(1, 0)) // wakes who accepts
	} else if l.ln != nil {
		l.ln.Close() // there is no other way
	}
	go func() {
		l.serving.Wait()
		l.drained.Store(true)
		l.shutIfDrained()
	}()
	return nil
}

// Adopt listens with ln, a listener for TCP that it owns from then on, and at the address of ln
// on every SAN that serves it, for those whom ln serves: a socket for IPv6 alone leaves IPv4 to
// others, and one that is bound to a device stays on TCP.
func (s *Switch) Adopt(ln net.Listener) *Listener {
	_, ok := ln.Addr().(*net.TCPAddr)
	if !ok {
		return plainListener(ln, ln.Addr().Network(), Route{Path: PathOther, Reason: ReasonNetwork})
	}
	plain := func(why Reason, err error) *Listener {
		return plainListener(ln, "tcp", Route{Path: PathTCP, Reason: why, Err: err})
	}
	if s.disabled() {
		return plain(ReasonDisabled, s.whyDisabled())
	}
	tcp, device := reachOf(ln)
	if device {
		return plain(ReasonNoProvider, errDevice)
	}
	sans, why, err := s.listenBeside(context.Background(), tcp, ln)
	if len(sans) == 0 {
		return plain(why, err)
	}
	route := Route{Path: PathTCP, Reason: ReasonPlainClient, Err: err}
	return s.newListener("tcp", tcp, ln, ln.Addr(), sans, route)
}

// errDevice is why a listener is on TCP alone: a SAN does not know of the host's devices.
var errDevice = errors.New("the socket is bound to a device")
