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

	"sansock/internal/alarm"
	"sansock/provider"
)

// The new end of a session comes to a listener that is there for it alone, but that others may find.
const (
	maxCallers  = 16 // that are heard at a time
	callTimeout = 5 * time.Second
)

// mover is what a Conn has for hand-overs. It needs Conn.mu.
type mover struct {
	provider provider.Provider // of the endpoint; nil: no hand-over
	patience time.Duration     // Config.ResumeTimeout
	old      []oldRegions      // of which the application keeps buffers
	answer   gate              // of Handover, for the peer's answer
	opening  bool              // an address is being opened: one at a time, whatever the peer says
	stay     *stay             // the address where the peer's new end is waited for; nil: none
	expiry   alarm.Alarm       // bounds that wait
}

// stay is the wait of a passive end.
type stay struct {
	s      *suspension
	until  time.Time
	stop   func()      // closes the address; nil: not open yet
	opened atomic.Bool // the token has been shown
}

func (m *mover) init(cfg Config) {
	m.provider, m.patience = cfg.Provider, cfg.ResumeTimeout
	if m.patience <= 0 {
		m.patience = DefaultResumeTimeout
	}
}

// stop ends the waits for an answer, and for a new end.
func (m *mover) stop() {
	m.answer.wake()
	m.expiry.Stop()
	if m.stay != nil && m.stay.stop != nil {
		m.stay.stop()
	}
	m.stay = nil
}

// returned takes back a piece of an endpoint that is closed.
func (m *mover) returned(ep provider.Endpoint, it item) {
	for i := range m.old {
		if o := &m.old[i]; o.ep == ep {
			if o.returned(it) {
				m.old = append(m.old[:i], m.old[i+1:]...)
			}
			return
		}
	}
}

// signalHandover has what a hand-over needs happen. It needs mu.
func (c *Conn) signalHandover() {
	s := c.core.susp
	m := &c.move
	if s == nil {
		return
	}
	if s.over() && m.answer.n > 0 || m.stay != nil && (s.over() || m.stay.s != s) {
		m.stop() // called off
	}
	switch {
	case s.over():
	case s.role == active:
		if m.answer.n > 0 && (s.state == suspAnswered || c.closed.Load() || c.core.suspendBroken() != nil) {
			m.answer.wake()
		}
	case s.state == suspOpening && m.stay == nil && !c.epClosed:
		m.answer.wake() // of a Handover that has given way to the peer's
		if m.opening {
			return
		}
		m.opening = true
		m.stay = &stay{s: s}
		go c.openStay(m.stay)
	}
}

// openStay listens for the new end, and has the peer told.
func (c *Conn) openStay(w *stay) {
	local := netip.AddrPortFrom(c.local.Addr(), 0)
	l, err := c.move.provider.Listen(local, maxCallers)
	c.lock()
	if err == nil && c.move.stay != w {
		c.unlock()
		l.Close() // not with mu held: it may wait for requests on their way
		c.lock()
		err = net.ErrClosed
	}
	defer c.unlock() // sees to a hand-over that has begun meanwhile
	c.move.opening = false
	if c.move.stay != w {
		return
	}
	// Also where it is refused: until the peer lets that leave, nothing else looks after the connection.
	w.until = time.Now().Add(c.move.patience)
	c.move.expiry.Set(c.move.patience, c.expired)
	if err != nil {
		c.core.opened(nil)
		return
	}
	t := ticket{addr: l.Addr()}
	rand.Read(t.token[:])
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = func() {
		cancel()
		go l.Close() // as above
	}
	go c.receiveEnd(ctx, l, w, &t)
	c.core.opened(&t)
}

// expired ends a connection whose new end did not come.
func (c *Conn) expired() {
	c.lock()
	defer c.unlock()
	if w := c.move.stay; w != nil && !time.Now().Before(w.until) { // else the alarm was for another one
		c.lose()
	}
}

// lose gives a connection up whose new end does not come. It needs mu.
func (c *Conn) lose() {
	if !c.epClosed {
		c.core.fail(syscall.ECONNRESET, abortTimeout)
		c.closeEndpoint()
	}
}

// receiveEnd answers those who come to l, until it is closed.
func (c *Conn) receiveEnd(ctx context.Context, l provider.Listener, w *stay, t *ticket) {
	var heard callers
	slots := make(chan struct{}, 2*maxCallers) // as one who has to go may take a moment
	for {
		req, err := l.Accept()
		if err != nil {
			return // closed, or as good as that: the alarm is set
		}
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			cctx, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			who := &caller{host: req.RemoteAddr().Addr(), leave: cancel}
			heard.enter(who)
			defer heard.exit(who)
			opener := func(shown token) bool {
				// In the same time wherever a wrong one differs.
				return subtle.ConstantTimeCompare(shown[:], t.token[:]) == 1 && heard.know(who) &&
					w.opened.CompareAndSwap(false, true)
			}
			c.receiveCaller(cctx, req, w, opener)
		}()
	}
}

// receiveCaller makes the caller the new end, if opener takes its token. Who has shown that uses it up, and with it the
// connection, should it fail afterwards.
func (c *Conn) receiveCaller(ctx context.Context, req provider.Request, w *stay, opener func(token) bool) {
	ep, err := req.Accept(ctx)
	if err != nil {
		return
	}
	cfg := Config{Provider: c.move.provider, Timeout: callTimeout}
	opened := false
	n := negotiation{side: Listener, opener: func(t token) bool { opened = opener(t); return opened }}
	fresh, wakes, err := negotiateResumed(ctx, ep, cfg, n)
	switch {
	case err == nil:
		c.adopt(fresh, wakes, w)
	case opened:
		c.lock()
		defer c.unlock()
		if c.move.stay == w {
			c.lose()
		}
	}
}

// negotiateResumed negotiates a session that goes on, and returns a Conn that has nothing but the new endpoint, locked.
func negotiateResumed(ctx context.Context, ep provider.Endpoint, cfg Config, n negotiation) (*Conn, *redirect, error) {
	c := newConn(ep, cfg)
	c.lock()
	r := redirectTo(c.wake)
	ep.OnWake(r.wake)
	n.core = &c.core
	if err := n.conclude(ctx, c, cfg.Timeout); err != nil {
		return nil, nil, err
	}
	return c, r, nil
}

// adopt goes on with the endpoint of fresh, whose lock is held.
//
// Lock order: fresh.mu before c.mu. Nobody else knows fresh.
func (c *Conn) adopt(fresh *Conn, wakes *redirect, w *stay) {
	c.lock()
	refuse := func() {
		c.unlock()
		fresh.core.abort(abortReset)
		fresh.core.pump()
		fresh.discard()
	}
	if c.move.stay != w || c.core.line.state != lineQuiet || c.epClosed {
		refuse()
		return
	}
	old := c.ep
	c.core.poll()
	old.Close() // the peer has closed it, or should have
	c.core.poll()
	if c.core.life >= lifeSettling { // the peer has thought better of it at the last moment, or broken the protocol
		c.closeEndpoint()
		refuse()
		return
	}
	if kept, lent := c.core.unbind(); lent > 0 {
		c.move.old = append(c.move.old, oldRegions{ep: old, recv: kept, lent: lent})
	}
	c.move.stop()
	c.core.rebound(&fresh.core)
	c.ep, c.spinner = fresh.ep, fresh.spinner
	c.sleepIn(c.ep) // who sleeps in the old one has been woken by its end
	// Who woke fresh until here finds its completion polled below; who wakes later finds c.
	wakes.turn(c.wake)
	fresh.closed.Store(true)
	fresh.epClosed = true // not its own any more
	fresh.mu.Unlock()
	c.core.poll()
	c.rd.wake()
	c.wr.wake()
	c.unlock()
}
