package session

import (
	"context"
	"net"
	"time"
)

// suspendTimeout bounds the wait for the peer to stop.
const suspendTimeout = 10 * time.Second

// Handover ends this end of the session for another one, in this process or another: it returns what Resume goes on
// with. The peer notices a pause. Both directions come to rest first, as far as they have to: a large Write or Read
// under way is cut short where it is. When Handover returns, c is closed, without a word to the peer. Reads and Writes
// that wait return net.ErrClosed, with the number of bytes that were passed on or will be. Buffers that the application
// keeps stay valid.
//
// When it fails the connection is as it was: the error is ErrNoHandover, ErrHandoverBusy, ctx's cause,
// context.DeadlineExceeded after 10 s, or what Write would return. The peer waits for the new end for
// its Config.ResumeTimeout, and then takes the connection for reset.
//
// The state is a secret: with it anybody who can reach the peer takes the connection over. It can be used once.
func (c *Conn) Handover(ctx context.Context) (state []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, suspendTimeout)
	defer cancel()
	c.lock()
	defer c.unlock()
	for {
		if c.closed.Load() {
			return nil, net.ErrClosed
		}
		c.core.poll()
		err := c.core.suspend()
		if err == nil {
			break
		}
		// Where the peer's new end is there already, and may know, it is only a moment until that is over.
		s := c.core.susp
		if err != ErrHandoverBusy || s.leaving || !s.opened.Load() || ctx.Err() != nil {
			return nil, err
		}
		c.await(ctx, &s.wait)
	}
	s := c.core.susp
	for s.ticket == nil && s.err == nil {
		switch {
		case c.closed.Load():
			s.err = net.ErrClosed
		case c.core.suspendBroken() != nil:
			s.err = c.core.suspendBroken()
		case ctx.Err() != nil:
			s.err = context.Cause(ctx)
		default:
			c.await(ctx, &s.wait)
			c.core.poll()
		}
	}
	if s.err == nil { // it may have come to an end beside the answer
		if s.err = c.core.suspendBroken(); c.closed.Load() {
			s.err = net.ErrClosed
		}
	}
	if err := s.err; err != nil {
		s.err = nil
		c.core.stay(s)
		return nil, err
	}
	state = c.state(*s.ticket)
	c.leave()
	return state, nil
}

// suspendBroken is why there will be no answer.
func (c *core) suspendBroken() error {
	switch {
	case c.err != nil:
		return c.err
	case c.peerGone, c.ended, c.closing:
		return net.ErrClosed
	}
	return nil
}

// leave closes the Conn without a word. It needs mu.
func (c *Conn) leave() {
	c.closed.Store(true)
	c.rdl.stop()
	c.wdl.stop()
	c.timers.close()
	c.closeEndpoint()
}

// signalSuspend has what the hand-over needs happen. It needs mu.
func (c *Conn) signalSuspend() {
	s := c.core.susp
	switch {
	case s.leaving:
		if s.wait.n > 0 && (s.ticket != nil || s.err != nil || c.closed.Load() || c.core.suspendBroken() != nil) {
			s.wait.wake()
		}
	case !s.over && !s.asked && !c.opening && !c.epClosed:
		s.asked, c.opening = true, true
		go c.openStay(s)
	}
}
