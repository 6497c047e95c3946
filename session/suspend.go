package session

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"sansock/provider"
)

// Hand-over: one end of a session, the leaving one, goes on in another process, and the other end, the staying one, notices
// a pause and nothing else.
//
// The leaving end stops sending data, takes back its large write, and says kindSuspend. The staying end stops likewise, opens an
// address where it can be found, and says kindSuspended with a ticket: that address and a token. But for credits it is the
// last that it says on this connection, so that nothing is on its way then. The leaving end puts what is left, and the ticket, into a
// State, closes the provider's connection, and is over. Whoever has the State connects to the address, shows the
// token, and is the session's end from then on.
//
// The files: suspend.go the core's part, handover.go the leaving Conn, stay.go the staying one, resume.go the new
// end, state.go what is passed on.

// tokenSize is the size of the secret that opens a suspended session: 256 bits.
const tokenSize = 32

type token [tokenSize]byte

// ticket is where and how a suspended session goes on.
type ticket struct {
	token token
	addr  netip.AddrPort
}

const ticketSize = tokenSize + 16 + 2

func (t ticket) append(b []byte) []byte {
	b = append(b, t.token[:]...)
	a := t.addr.Addr().As16()
	b = append(b, a[:]...)
	return binary.LittleEndian.AppendUint16(b, t.addr.Port())
}

// parseTicket decodes a ticket. IPv4 addresses come mapped to IPv6.
func parseTicket(b []byte) (t ticket, err error) {
	if len(b) < ticketSize {
		return t, protocolError("ticket of %d bytes", len(b))
	}
	copy(t.token[:], b)
	addr := netip.AddrFrom16([16]byte(b[tokenSize:])).Unmap()
	t.addr = netip.AddrPortFrom(addr, binary.LittleEndian.Uint16(b[tokenSize+16:]))
	if addr.IsUnspecified() || t.addr.Port() == 0 {
		return t, protocolError("ticket for %v", t.addr)
	}
	return t, nil
}

// suspension is a hand-over under way.
type suspension struct {
	leaving bool   // this end is handed over, not the peer
	number  uint64 // chosen by the end that leaves
	over    bool   // nothing is left to do

	sent    bool // leaving: kindSuspend, staying: kindSuspended
	ticket  *ticket
	err     error // leaving: why not
	refused bool  // staying: it is not possible

	// Staying:
	asked  bool        // the Conn is to open an address
	stop   func()      // closes that; nil: not open yet
	timer  *time.Timer // bounds the wait for the new end
	opened atomic.Bool // the token has been shown

	wait gate // leaving: for the answer
}

// pending reports that something waits to leave.
func (s *suspension) pending() bool { return !s.over && !s.sent }

// Errors of Handover after which the connection is as it was.
var (
	// ErrNoHandover: the peer, or this end, cannot. It is errors.ErrUnsupported.
	ErrNoHandover error = unsupported("session: hand-over is not supported by both ends")

	// ErrHandoverBusy: the peer is being handed over itself, or cannot open an address for the new end.
	ErrHandoverBusy error = unsupported("session: the peer cannot wait for a hand-over now")
)

// suspend begins to hand this end over.
func (c *core) suspend() error {
	switch {
	case c.features&featureHandover == 0:
		return ErrNoHandover
	case c.err != nil:
		return c.err
	case c.ended, c.peerGone, c.closing, c.aborting:
		return syscall.ENOTCONN
	case c.susp != nil && !c.susp.over:
		return ErrHandoverBusy
	}
	c.suspends++
	c.susp = &suspension{leaving: true, number: c.suspends}
	c.note()
	c.paused = true
	c.revokeOutbound()
	c.pump()
	return nil
}

// quiet reports that no transfer of this end is under way.
func (c *core) quiet() bool {
	return (!c.out.active || c.outboundOver()) && !c.out.wrote && !c.in.doneWanted && c.buffer != bufferOut
}

// pumpSuspend says what there is to say about a hand-over.
func (c *core) pumpSuspend() {
	s := c.susp
	if s.over || s.sent || c.goOnSoon != 0 || !c.quiet() || !c.canControl() || !c.roomFor(ticketSize) {
		return
	}
	switch {
	case s.leaving:
		s.sent = true
		c.post(kindSuspend, 0, s.number, 0, nil, true)
	case s.refused:
		c.post(kindSuspended, 0, s.number, 0, nil, true)
		c.endSuspend()
	case s.ticket != nil:
		s.sent = true
		c.post(kindSuspended, 0, s.number, 0, s.ticket.append(nil), true)
		c.muted, c.abortSent = true, true
	}
}

// suspendAsked acts on the peer's wish to be handed over.
func (c *core) suspendAsked(number uint64) error {
	switch {
	case c.features&featureHandover == 0:
		return protocolError("hand-over without agreement")
	case c.in.active, c.peerGone:
		return protocolError("hand-over in the middle of an offer, or after the end")
	case c.closeSent, c.aborting:
		return nil // the peer will find out
	}
	if s := c.susp; s != nil && !s.over {
		switch {
		case !s.leaving:
			return protocolError("hand-over %d while %d is under way", number, s.number)
		case s.sent && !c.dialer:
			return nil // the dialer gives way
		case s.sent:
			c.goOnSoon = s.number // the peer may have thought better of its own before it saw ours
		}
		s.err = ErrHandoverBusy
		c.endSuspend()
	}
	c.susp = &suspension{number: number}
	c.note()
	c.paused = true
	c.revokeOutbound()
	return nil
}

// suspendAnswered acts on the peer's answer: it has stopped, or cannot.
func (c *core) suspendAnswered(number uint64, payload []byte) (err error) {
	s := c.susp
	if s == nil || s.over || !s.leaving || s.number != number || !s.sent {
		if number == 0 || number > c.suspends || s != nil && s.leaving && s.number == number && !s.sent {
			return protocolError("hand-over %d answered unasked", number)
		}
		return nil // it was called off, or gave way
	}
	if len(payload) == 0 {
		s.err = ErrHandoverBusy
		return nil
	}
	if c.in.active || s.ticket != nil {
		return protocolError("hand-over answered in the middle of an offer, or twice")
	}
	t, err := parseTicket(payload)
	if err == nil {
		s.ticket = &t
	}
	return err
}

// stay calls s, a hand-over of this end, off.
func (c *core) stay(s *suspension) {
	if c.susp != s || s.over || !s.leaving {
		return
	}
	c.endSuspend()
	if s.sent && s.err == nil && !c.ended {
		c.goOnSoon = s.number
		c.note()
	}
	c.pump()
}

// goOn acts on the peer's word that it stays.
func (c *core) goOn(number uint64) {
	if s := c.susp; s != nil && !s.leaving && s.number == number {
		c.endSuspend()
	}
}

// endSuspend goes on with this connection.
func (c *core) endSuspend() {
	s := c.susp
	if s.over {
		return
	}
	s.over = true
	s.close()
	if c.muted {
		c.muted, c.abortSent = false, false
	}
	c.paused = false
	c.note()
}

// close ends the waits for an answer, and for a new end.
func (s *suspension) close() {
	s.wait.wake()
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
	if s.timer != nil {
		s.timer.Stop()
	}
}

// dropSuspend ends a hand-over with the connection.
func (c *core) dropSuspend() {
	if c.susp != nil {
		c.muted = false
		c.susp.over = true
		c.susp.close()
		c.note()
	}
}

// rebound is the core of a session's staying end, c, on another endpoint, where fresh has been negotiated. What c had
// received has been copied from the old endpoint's memory.
func (c *core) rebound(fresh *core) {
	n := *fresh
	n.queue, n.queued, n.spilled, n.readBuffer = c.queue, c.queued, c.spilled, c.readBuffer
	n.eof, n.deaf = c.eof, c.deaf
	n.held, n.small, n.finWanted, n.finSent = c.held, c.small, c.finWanted, c.finSent
	if c.buffer != bufferNone {
		n.buffer = bufferDone
	}
	// Transfers are over, but who waited for them may not have noticed.
	n.in = inbound{id: c.in.id, got: c.in.got, over: c.in.over}
	n.out = outbound{active: c.out.active, id: c.out.id, p: c.out.p, taken: c.out.taken, over: c.out.over, direct: c.out.direct}
	n.threshold, n.cache, n.dry = c.threshold, c.cache, c.dry
	n.closing = c.closing
	n.pipeTold, n.errTold = c.pipeTold, c.errTold
	n.suspends, n.dialer = c.suspends, c.dialer
	n.urg = c.urg
	stats := c.stats
	stats.MessagesReceived += n.stats.MessagesReceived
	stats.MessagesSent += n.stats.MessagesSent
	n.stats = stats
	if n.urg != nil && n.urg.taken > 0 {
		n.urg.takenWanted = true // the last word on it may have been lost
	}
	*c = n
	c.note()
}

// unbind ends the use of the old endpoint, which is closed: what was received moves to memory of our own. It returns
// the regions of which the application still keeps buffers.
func (c *core) unbind() (kept [2]receives, lent int) {
	for i := range c.queue.len() {
		it := c.queue.pop()
		if it.gen < 0 {
			c.queue.push(it)
			continue
		}
		c.keep(it.data, i > 0)
		c.recv[it.gen].held--
	}
	c.send.close(c.ep)
	if c.regs != nil {
		c.regs.Close()
		c.regs = nil
	}
	for i := range c.recv {
		r := &c.recv[i]
		r.retired, r.posted = true, 0
		r.release(c.ep)
		kept[i] = *r
	}
	return kept, c.lent
}

// moved is what a Conn keeps that goes on over another endpoint than the first.
type moved struct {
	local, remote netip.AddrPort // as they were
	old           []oldRegions
}

// oldRegions are receive regions of an endpoint that is closed, of which the application keeps buffers.
type oldRegions struct {
	ep   provider.Endpoint
	recv [2]receives
	lent int
}

// returned takes back a piece of an old endpoint's, or one of no endpoint's.
func (m *moved) returned(ep provider.Endpoint, it item) {
	if it.gen < 0 {
		new(core).consumed(&it)
		return
	}
	for i := range m.old {
		o := &m.old[i]
		if o.ep != ep {
			continue
		}
		o.recv[it.gen].held--
		o.recv[it.gen].release(ep)
		if o.lent--; o.lent == 0 {
			m.old = append(m.old[:i], m.old[i+1:]...)
		}
		return
	}
}
