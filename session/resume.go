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
	c.moved = &moved{local: s.local, remote: s.remote}
	c.core.load(s)
	c.core.pump()
	c.started()
	return c, nil
}

// load makes c, which has just been negotiated, the end that s is of.
func (c *core) load(s *State) {
	c.dialer = s.flags&stateDialer != 0
	c.eof = s.flags&stateEOF != 0
	c.deaf = s.flags&stateDeaf != 0
	c.finWanted = s.flags&(stateFinWanted|stateFinSent) != 0
	c.finSent = s.flags&stateFinSent != 0
	c.suspends = s.suspends
	c.stats.BytesCopiedIn, c.stats.BytesCopiedOut = s.in, s.out
	if n := len(s.unread); n > 0 {
		own := pool.Get(n)
		c.queue.push(item{data: own[:copy(own, s.unread)], own: own, gen: -1})
		c.queued, c.spilled = n, n
	}
	if n := len(s.held); n > 0 {
		c.held = append(pool.Get(n)[:0], s.held...)
	}
	if su := &s.urgent; su.arrived > 0 || su.sent > 0 {
		u := c.urgent()
		u.arrived, u.taken, u.mark, u.sent, u.acked = su.arrived, su.taken, su.mark, su.sent, su.acked
		for _, it := range su.queue {
			u.queue.push(urgentItem{append([]byte(nil), it.data...), it.mark})
		}
		u.takenWanted = u.taken > 0 // the last word on it may have been lost
		c.note()
	}
}
