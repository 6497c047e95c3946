//go:build linux

package shm

import (
	"context"
	"errors"
	"net/netip"

	"sansock/provider"
)

// ephemeral ports are dialed from.
const (
	firstEphemeral = 49152
	lastEphemeral  = 65535
	portTries      = 64
)

// Dial connects to remote. A port 0 of local leaves the choice to the node; an address it must have.
// The error is a *provider.Error, as of provider.Provider's Dial.
func (n *Node) Dial(ctx context.Context, local, remote netip.AddrPort) (provider.Endpoint, error) {
	return n.DialEarly(ctx, local, remote, func(provider.Endpoint) error { return nil })
}

// DialEarly is Dial as in provider.EarlyDialer.
func (n *Node) DialEarly(ctx context.Context, local, remote netip.AddrPort, begin func(provider.Endpoint) error) (provider.Endpoint, error) {
	for range portTries {
		from := local
		if local.Port() == 0 {
			from = netip.AddrPortFrom(local.Addr(), uint16(firstEphemeral+salt()%(lastEphemeral-firstEphemeral+1)))
		}
		e, err := n.dialFrom(ctx, from, remote, begin)
		if e != nil {
			return e, nil
		}
		if local.Port() != 0 || provider.StatusOf(err) != provider.StatusAddrInUse {
			return nil, err
		}
	}
	return nil, n.failure("dial", provider.StatusAddrNotAvail, nil)
}

func (n *Node) dialFrom(ctx context.Context, local, remote netip.AddrPort, begin func(provider.Endpoint) error) (*endpoint, error) {
	if !n.join(flow{local, remote}, true) {
		return nil, n.failure("dial", provider.StatusAddrInUse, nil)
	}
	for try := 0; ; try++ {
		var l *link
		var err error
		if try == 0 {
			l = n.metAt(remote) // perhaps to no avail, and then the rendezvous tells
		}
		again := l != nil
		if !again {
			l, err = n.linkTo(ctx, remote)
		}
		if err == nil {
			var e *endpoint
			var entered bool
			if e, entered, err = l.dial(ctx, local, remote, begin); err == nil {
				return e, nil
			}
			lost := errors.Is(err, errLost) // it may have been idle for too long
			gone := again && provider.StatusOf(err) == provider.StatusNoListener
			if (lost && try < 2 || gone) && ctx.Err() == nil && !n.closed.Load() {
				n.forgetMeeting(remote)
				if lost {
					l.hangUp()
					n.await(ctx, l)
				}
				if entered && !n.join(flow{local, remote}, true) {
					return nil, n.failure("dial", provider.StatusAddrInUse, nil)
				}
				continue
			}
			if entered {
				return nil, n.dialError(ctx, err) // the end of e leaves the flow
			}
		}
		n.leave(flow{local, remote}, true)
		return nil, n.dialError(ctx, err)
	}
}

// await waits until l is over, after which nothing leads to it.
func (n *Node) await(ctx context.Context, l *link) {
	select {
	case <-l.done:
	case <-ctx.Done():
	case <-n.done:
	}
}

// dialError brings an error into the form of the interface.
func (n *Node) dialError(ctx context.Context, err error) error {
	var p *provider.Error
	switch {
	case n.closed.Load():
		return n.failure("dial", provider.StatusClosed, nil)
	case ctx.Err() == context.DeadlineExceeded:
		return n.failure("dial", provider.StatusTimeout, ctx.Err())
	case ctx.Err() != nil:
		return n.failure("dial", provider.StatusAborted, ctx.Err())
	case errors.As(err, &p):
		return &provider.Error{Provider: n.Name, Op: "dial", Status: p.Status, Reason: p.Reason, Err: p.Err}
	}
	s := provider.StatusOf(err)
	if s == err {
		err = nil
	}
	return n.failure("dial", s, err)
}

// dial makes a connection over the link. After an error, entered says that the connection existed for a moment, and that
// its end sees to the flow.
func (l *link) dial(ctx context.Context, local, remote netip.AddrPort, begin func(provider.Endpoint) error) (e *endpoint, entered bool, err error) {
	if short := l.backlog(); short != nil { // many dial at once, or the peer does not move
		select {
		case <-short:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		case <-l.node.done:
			return nil, false, provider.StatusClosed
		}
	}
	e, err = newEndpoint(l, local, remote)
	if err == provider.StatusDisconnected {
		err = errLost
	}
	if err != nil {
		return nil, false, err
	}
	e.dial.answer = make(chan error, 1)
	if err = begin(e); provider.StatusOf(err) == provider.StatusDisconnected {
		err = errLost
	}
	e.mu.Lock() // the answer waits until the question is complete
	if err == nil && e.over() {
		err = provider.StatusLink // the peer has put nonsense where it did not know that there would be an inbox
	}
	if err == nil {
		err = l.enter(e)
	}
	if err != nil {
		e.mu.Unlock()
		e.Close()
		return nil, false, err
	}
	e.stage = stageAsked
	c := control{kind: ctlRequest, conn: e.id, inbox: e.in.blk.at, local: local, remote: remote, first: e.dial.first}
	e.dial.first = nil
	l.sendControl(c)
	e.mu.Unlock()
	if !e.glance() {
		e.mu.Lock()
		if e.in.arm != nil {
			e.in.arm.Swap(uint64(provider.WakeAny)) // see words
		}
		e.mu.Unlock()
		e.look()
	}
	select {
	case err = <-e.dial.answer:
		if err == nil {
			return e, true, nil
		}
	case <-ctx.Done():
		err = ctx.Err()
	case <-l.node.done:
		err = provider.StatusClosed
	}
	e.Close()
	return nil, true, err
}
