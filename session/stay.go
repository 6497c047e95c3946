package session

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"sansock/provider"
)

// The new end of a session comes to a listener that is there for it alone, but that others may find.
const (
	maxCallers  = 16 // that are heard at a time
	callTimeout = 5 * time.Second
)

// openStay listens for the new end, and has the peer told.
func (c *Conn) openStay(s *suspension) {
	local := netip.AddrPortFrom(c.LocalAddr().Addr(), 0)
	l, err := c.provider.Listen(local, maxCallers)
	c.lock()
	if err == nil && (s.over || c.epClosed) {
		c.unlock()
		l.Close() // not with mu held: it may wait for requests on their way
		c.lock()
		err = net.ErrClosed
	}
	defer c.unlock() // sees to a hand-over that has begun meanwhile
	c.opening = false
	if !s.over && !c.epClosed {
		// Also where it is refused: until the peer lets that leave, nothing else looks after the connection.
		s.timer = time.AfterFunc(c.patience, func() { c.expire(s) })
	}
	if err != nil {
		s.refused = true
		c.core.pump()
		return
	}
	t := ticket{addr: l.Addr()}
	rand.Read(t.token[:])
	ctx, cancel := context.WithCancel(context.Background())
	s.ticket = &t
	s.stop = func() {
		cancel()
		go l.Close() // as above
	}
	go c.receiveEnd(ctx, l, s)
	c.core.pump()
}

// expire ends a connection whose new end did not come.
func (c *Conn) expire(s *suspension) {
	c.lock()
	defer c.unlock()
	if !s.over && !c.epClosed {
		c.core.fail(syscall.ECONNRESET, abortTimeout)
		c.closeEndpoint()
	}
}

// receiveEnd answers those who come to l, until it is closed.
func (c *Conn) receiveEnd(ctx context.Context, l provider.Listener, s *suspension) {
	var heard callers
	slots := make(chan struct{}, 2*maxCallers) // as one who has to go may take a moment
	for {
		req, err := l.Accept()
		if err != nil {
			return // closed, or as good as that: the timer runs
		}
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			cctx, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			who := &caller{host: req.RemoteAddr().Addr(), leave: cancel}
			heard.enter(who)
			defer heard.exit(who)
			c.receiveCaller(cctx, req, s, func() bool { return heard.know(who) })
		}()
	}
}

// receiveCaller makes the caller the new end, if it has the token, and is still there as known says. Who has shown that uses it
// up, and with it the connection, should it fail afterwards.
func (c *Conn) receiveCaller(ctx context.Context, req provider.Request, s *suspension, known func() bool) {
	ep, err := req.Accept(ctx)
	if err != nil {
		return
	}
	cfg := Config{Provider: c.provider, Timeout: callTimeout}
	opened := false
	opener := func(t token) bool {
		// In the same time wherever a wrong one differs.
		if subtle.ConstantTimeCompare(t[:], s.ticket.token[:]) == 1 && known() {
			opened = s.opened.CompareAndSwap(false, true)
		}
		return opened
	}
	fresh, wakes, err := negotiateResumed(ctx, ep, cfg, negotiation{side: Listener, opener: opener})
	if err != nil {
		if opened {
			c.expire(s)
		}
		return
	}
	c.adopt(fresh, wakes, s)
}

// redirect is a wake function whose target changes once, from the Conn that negotiates to the one that goes on.
type redirect struct{ to atomic.Pointer[Conn] }

func (r *redirect) wake() { r.to.Load().wake() }

// negotiateResumed negotiates a session that goes on, and returns a Conn that has nothing but the new endpoint, locked.
func negotiateResumed(ctx context.Context, ep provider.Endpoint, cfg Config, n negotiation) (*Conn, *redirect, error) {
	c := newConn(ep, cfg)
	c.lock()
	r := new(redirect)
	r.to.Store(c)
	ep.OnWake(r.wake)
	n.core = &c.core
	if err := n.conclude(ctx, c, cfg.Timeout); err != nil {
		return nil, nil, err
	}
	return c, r, nil
}

// adopt goes on with the endpoint of fresh, whose lock is held.
func (c *Conn) adopt(fresh *Conn, wakes *redirect, s *suspension) {
	c.lock()
	if s.over || !c.core.muted || c.epClosed {
		c.unlock()
		fresh.core.abort(abortReset)
		fresh.discard()
		return
	}
	old := c.ep
	local, remote := old.LocalAddr(), old.RemoteAddr()
	c.core.poll()
	old.Close() // the peer has closed it, or should have
	c.core.poll()
	if c.core.done || c.core.aborting { // the peer has thought better of it at the last moment, or broken the protocol
		c.closeEndpoint()
		c.unlock()
		fresh.core.abort(abortReset)
		fresh.discard()
		return
	}
	if c.moved == nil {
		c.moved = &moved{local: local, remote: remote}
	}
	kept, lent := c.core.unbind()
	if lent > 0 {
		c.moved.old = append(c.moved.old, oldRegions{ep: old, recv: kept, lent: lent})
	}
	s.over = true
	s.close()
	c.core.rebound(&fresh.core)
	c.ep, c.spinner = fresh.ep, fresh.spinner
	c.seats(c.ep) // who sleeps in the old one has been woken by its end
	// Who woke fresh until here finds its completion polled below; who wakes later finds c.
	wakes.to.Store(c)
	fresh.closed.Store(true)
	fresh.epClosed = true // not its own any more
	fresh.mu.Unlock()
	c.core.poll()
	c.core.pump()
	c.rd.wake()
	c.wr.wake()
	c.unlock()
}
