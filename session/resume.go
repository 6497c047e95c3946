package session

import (
	"context"

	pool "github.com/libp2p/go-buffer-pool"

	"sansock/provider"
)

// Resume goes on with an end of a session that was handed over, on an endpoint that is connected to State.Addr. It owns ep from
// the call on. The Conn has the addresses and the options of the old one, but for deadlines and keep-alive. On
// any error the session is over, or will be when the peer has waited long enough.
func Resume(ctx context.Context, ep provider.Endpoint, s *State, cfg Config) (*Conn, error) {
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	cfg.ReadBuffer = int(s.readBuffer)
	c, _, err := negotiateResumed(ctx, ep, cfg, negotiation{side: Dialer, token: &s.ticket.token})
	if err != nil {
		return nil, err
	}
	c.linger = int(s.linger)
	c.move.local, c.move.remote = s.local, s.remote
	c.core.load(s)
	c.started()
	return c, nil
}

// load makes c, which has just been negotiated, the end that s is of.
func (c *core) load(s *State) {
	c.dialer = s.flags&stateDialer != 0
	c.reading, c.writing = s.reading, s.writing
	c.suspends = s.suspends
	c.arrived, c.stream.written = s.in, s.out
	if n := len(s.unread); n > 0 {
		own := pool.Get(n)
		c.queue.Push(item{data: own[:copy(own, s.unread)], own: own, gen: -1})
		c.queued, c.spilled = n, n
	}
	if su := &s.urgent; su.arrived > 0 || su.sent > 0 {
		u := c.urgent()
		u.arrived, u.taken, u.mark, u.sent, u.acked = su.arrived, su.taken, su.mark, su.sent, su.acked
		for _, it := range su.queue {
			u.queue.Push(urgentItem{append([]byte(nil), it.data...), it.mark})
		}
	}
	c.repeat()
}
