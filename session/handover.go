package session

import (
	"context"
	"net"
	"time"

	pool "github.com/libp2p/go-buffer-pool"

	"sansock/provider"
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
		if w := c.move.stay; err != ErrHandoverBusy || w == nil || !w.opened.Load() || ctx.Err() != nil {
			return nil, err
		}
		c.await(ctx, &c.move.answer)
	}
	s := c.core.susp
	if err := c.answer(ctx, s); err != nil {
		c.core.stay(s)
		return nil, err
	}
	state = c.state(*s.ticket)
	c.leave()
	return state, nil
}

// answer waits for the peer's answer to s. It needs mu.
func (c *Conn) answer(ctx context.Context, s *suspension) error {
	for {
		err := c.core.suspendBroken()
		switch {
		case c.closed.Load():
			return net.ErrClosed
		case err != nil: // also beside the answer
			return err
		case s.err != nil:
			return s.err
		case s.ticket != nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		c.await(ctx, &c.move.answer)
		c.core.poll()
	}
}

// leave closes the Conn without a word. It needs mu.
func (c *Conn) leave() {
	c.closed.Store(true)
	c.rd.deadline.stop()
	c.wr.deadline.stop()
	c.timers.close()
	c.closeEndpoint()
}

// Resume goes on with an end of a session that was handed over, on an endpoint that is connected to State.Addr. It owns ep from
// the call on. The Conn has the addresses and the options of the old one, but for deadlines and keep-alive. On
// any error the session is over, or will be when the peer has waited long enough.
func Resume(ctx context.Context, ep provider.Endpoint, s *State, cfg Config) (*Conn, error) {
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	cfg.ReadBuffer = int(s.ReadBuffer)
	c, _, err := negotiateResumed(ctx, ep, cfg, negotiation{side: Dialer, token: &s.Token})
	if err != nil {
		return nil, err
	}
	c.linger = int(s.Linger)
	c.local, c.remote = s.Local, s.Remote
	c.core.load(s)
	c.started()
	return c, nil
}

// load makes c, which has just been negotiated, the end that s is of.
func (c *core) load(s *State) {
	c.dialer, c.reading, c.writing = s.Dialer, s.Reading, s.Writing
	c.suspends = s.Suspends
	c.arrived, c.stream.written = s.In, s.Out
	if n := len(s.Unread); n > 0 {
		own := pool.Get(n)
		c.queue.Push(item{data: own[:copy(own, s.Unread)], own: own, gen: -1})
		c.queued, c.spilled = n, n
	}
	if su := &s.Urgent; su.Arrived > 0 || su.Sent > 0 {
		u := c.urgent()
		u.arrived, u.taken, u.mark, u.sent, u.acked = su.Arrived, su.Taken, su.Mark, su.Sent, su.Acked
		for _, it := range su.Queue {
			u.queue.Push(it)
		}
	}
	c.repeat()
}
