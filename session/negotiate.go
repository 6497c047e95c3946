package session

import (
	"context"
	"errors"
	"net"
	"time"

	"sansock/provider"
)

// Negotiate turns a connected endpoint into a session. It owns ep from the call on: after an error ep is closed. The
// dialing side returns once the peer has agreed; the listening side once the dialer has confirmed, so that a dialer which
// gave up leaves nothing behind.
//
// The error is ErrTimeout, ErrVersion, ErrProtocol, ErrMemory or ErrProvider, a *RefusedError, ctx's cause, or the provider's (a
// provider.Status). After none of them has the peer's application seen a connection.
func Negotiate(ctx context.Context, ep provider.Endpoint, side Side, cfg Config) (*Conn, error) {
	o := Open(side, cfg)
	if err := o.Begin(ep, nil); err != nil {
		return nil, err
	}
	return o.Conclude(ctx)
}

// negotiation is the exchange of hellos, which can be driven without goroutines: begin, then step for every completion.
type negotiation struct {
	core *core
	side Side
	done bool

	refused bool // the refusal has been sent

	// Of a session that goes on.
	token  *token           // dialing side: what opens it
	opener func(token) bool // listening side: whether a token does
}

// conclude goes through all of it. After an error the connection, whose lock is held, is gone.
func (n *negotiation) conclude(ctx context.Context, c *Conn, timeout time.Duration) error {
	err := n.start()
	if err == nil {
		err = n.run(ctx, c, timeout)
	}
	if err != nil {
		n.leave(c)
		c.discard()
	}
	return err
}

// start begins, unless the peer has refused already.
func (n *negotiation) start() error {
	err := n.begin()
	if err != nil {
		if refusal := n.refusal(); refusal != nil {
			return refusal
		}
	}
	return err
}

// begin posts the receives and, on the dialing side, sends the offer.
func (n *negotiation) begin() error {
	c := n.core
	if c.attr.MaxInline < minBuffer && c.attr.MaxSends < minSends || c.attr.MaxRecvs < minReceives {
		return ErrProvider
	}
	c.dialer = n.side == Dialer
	err := c.recv[0].open(c.ep, 0, c.levels[0])
	if err == nil && c.attr.MaxInline < minBuffer {
		err = c.send.open(c.ep, min(idleReceives, c.attr.MaxSends), minBuffer)
	}
	if err != nil {
		switch provider.StatusOf(err) {
		case provider.StatusNoMemory, provider.StatusLimit:
			err = errors.Join(ErrMemory, err)
			if n.side == Listener {
				n.refuse(RefusedMemory)
			}
		}
		return err
	}
	if n.side == Dialer {
		h := hello{kind: helloOffer, minVersion: version, maxVersion: version}
		if n.token != nil {
			h.kind, h.token = helloResume, *n.token
		}
		return n.sendHello(h)
	}
	return nil
}

// refusal returns the refusal of a peer that had closed before we could begin.
func (n *negotiation) refusal() error {
	for n.core.ep.Poll(n.core.cq[:1]) == 1 {
		var refused *RefusedError
		if err := n.step(&n.core.cq[0]); errors.As(err, &refused) {
			return err
		}
	}
	return nil
}

// sendHello sends h with our receives and modes filled in.
func (n *negotiation) sendHello(h hello) error {
	c := n.core
	r := &c.recv[0]
	h.receives, h.size = uint16(r.count), uint32(r.size)
	if c.reader != nil {
		h.modes |= modeReader
	}
	if c.attr.RDMAReadable {
		h.modes |= modeReadable
	}
	h.features = c.offers
	b := h.append(make([]byte, 0, minBuffer))
	if len(b) <= c.attr.MaxInline {
		return c.ep.PostSend(provider.Send{Context: inlineContext, Inline: [2][]byte{b, nil}, Solicited: true})
	}
	if len(c.send.free) == 0 {
		return ErrMemory
	}
	slot := c.send.free[len(c.send.free)-1]
	c.send.free = c.send.free[:len(c.send.free)-1]
	c.inFlight++
	local := c.send.region.Segment(slot*c.send.size, len(b))
	copy(local.Bytes, b)
	return c.ep.PostSend(provider.Send{Context: uint64(slot), Local: local, Solicited: true})
}

// leave waits until a refusal has left, which Close would cut short.
func (n *negotiation) leave(c *Conn) {
	var limit deadline
	limit.set(time.Now().Add(sendTimeout))
	defer limit.stop()
	c.core.err = net.ErrClosed // what the peer had sent behind is not looked at
	if n.refused {
		c.sleepUntil(&c.rd.waiter, &limit, func() bool { return c.core.inFlight == 0 || c.core.line.state == lineEnded })
	}
}

// expected reports whether the dialer wants what there is: a new session, or the one that waits.
func (n *negotiation) expected(h hello) bool {
	if n.opener == nil {
		return h.kind == helloOffer
	}
	return h.kind == helloResume && n.opener(h.token)
}

// refuse tells the dialer, as well as it can be done, why there will be no session.
func (n *negotiation) refuse(code uint8) {
	n.sendHello(hello{kind: helloRefuse, minVersion: version, maxVersion: version, refusal: code})
	n.refused = true
}

// step acts on one completion.
func (n *negotiation) step(p *provider.Completion) error {
	c := n.core
	switch {
	case p.Op == provider.OpSend:
		c.sendDone(p.Context)
		return p.Status.Err()
	case p.Op != provider.OpRecv || p.Status == provider.StatusAborted:
		return provider.StatusDisconnected
	case p.Status != provider.StatusOK:
		return p.Status
	}
	_, slot := splitContext(p.Context)
	r := &c.recv[0]
	r.posted--
	var buf [minBuffer]byte // a copy, as the peer may still change the original
	b := buf[:copy(buf[:], r.segment(slot).Bytes[:min(p.Len, r.size)])]
	if c.win.n > 0 {
		return n.confirmed(b, slot)
	}
	h, err := parseHello(b)
	switch {
	case err != nil:
		return err
	case h.kind == helloRefuse && n.side == Dialer:
		return &RefusedError{Code: h.refusal}
	case (h.kind == helloOffer || h.kind == helloResume) != (n.side == Listener):
		return protocolError("hello of the wrong side")
	case n.side == Listener && !n.expected(h):
		n.refuse(RefusedToken)
		return &RefusedError{Code: RefusedToken}
	case h.minVersion > version || h.maxVersion < version:
		if n.side == Listener {
			n.refuse(RefusedVersion)
		}
		return ErrVersion
	}
	return n.agreed(h, slot)
}

// agreed goes on after a hello that will do.
func (n *negotiation) agreed(h hello, slot int) error {
	c := n.core
	// Our own hello has taken, or will take, one of the peer's receives.
	size := min(int(h.size), maxBuffer, c.attr.MaxMessage)
	c.win.n, c.win.grants[0].size = 1, size
	c.win.total = int(h.receives)
	if err := c.win.add(int(h.receives) - 1); err != nil {
		return err
	}
	c.peerReader = h.modes&modeReader != 0
	c.features = h.features & c.offers
	if h.modes&modeReadable == 0 {
		c.reader = nil // there will be nothing to read
	}
	if c.repost(0, slot); c.fault != nil {
		return c.fault
	}
	if n.side == Listener {
		return n.sendHello(hello{kind: helloAnswer, minVersion: version, maxVersion: version})
	}
	c.post(kindReady, 0, 0, 0, nil, true)
	n.done = true
	if c.line.state >= lineShut && c.fault == nil {
		return provider.StatusDisconnected
	}
	return c.fault
}

// confirmed expects the dialer's last word.
func (n *negotiation) confirmed(b []byte, slot int) error {
	c := n.core
	h, err := parseHeader(b)
	if err == nil && (h.kind != kindReady || h.length != 0) {
		err = protocolError("%v instead of ready", h.kind)
	}
	if err == nil {
		err = c.granted(h)
	}
	if err != nil {
		return err
	}
	c.repost(0, slot)
	n.done = true
	return c.fault
}

// steps acts on what has come. One at a time: what follows the negotiation is not ours to take.
func (n *negotiation) steps() error {
	for !n.done && n.core.ep.Poll(n.core.cq[:1]) == 1 {
		if err := n.step(&n.core.cq[0]); err != nil {
			return err
		}
	}
	return nil
}

// run drives the negotiation to its end.
func (n *negotiation) run(ctx context.Context, c *Conn, timeout time.Duration) error {
	if err := n.steps(); err != nil || n.done {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, ErrTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { c.rd.wake() })
	defer stop()
	for {
		if err := n.steps(); err != nil || n.done {
			return err
		}
		c.rd.park()
		if ctx.Err() != nil {
			c.rd.unpark()
			if err := context.Cause(ctx); err != nil {
				return err
			}
		}
		if n.core.ep.Arm(provider.WakeAny) {
			c.rd.unpark()
			continue
		}
		c.rd.wait()
	}
}
