package session

import (
	"net"
	"syscall"

	"sansock/provider"
)

// Hand-over: one end of a session, the active one, goes on in another process. The other end, the passive one,
// notices a pause and nothing else.
//
// The active end stops sending data, takes back its large write, and says kindSuspend. The passive end stops likewise,
// opens an address where it can be found, and says kindSuspended with a ticket: that address and a token. But for
// credits it is the last that it says on this line, so that nothing is on its way then. The active end puts what is left,
// and the ticket, into a State, closes the provider's connection, and is over. Whoever has the State connects to the
// address, shows the token, and is the session's end from then on.
//
// The files: suspension.go the core's part, handover.go the active Conn and the new end, passive.go the passive Conn,
// state.go what is passed on.

// suspension is a hand-over under way.
type suspension struct {
	role   role
	state  suspState
	number uint64  // chosen by the active end
	ticket *ticket // active: the peer's; passive: the own; nil: not there, or not possible
	err    error   // active: why not
}

// role is the part that an end has in a hand-over.
type role uint8

const (
	active  role = iota // it goes on elsewhere
	passive             // the peer does
)

// suspState is how far a hand-over has come.
type suspState uint8

const (
	suspOpening  suspState = iota // passive: the Conn is to open an address
	suspDue                       // letterSuspend is due
	suspSent                      // it has left: active, the answer is waited for; passive, the new end is
	suspAnswered                  // active: the answer is here, in ticket or err
	suspOver                      // nothing is left to do
)

func (s *suspension) over() bool { return s.state == suspOver }

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
	case c.line.state == lineEnded, c.peer != peerThere, c.life >= lifeClosing:
		return syscall.ENOTCONN
	case c.susp != nil && !c.susp.over():
		return ErrHandoverBusy
	}
	c.suspends++
	c.pauseFor(&suspension{role: active, state: suspDue, number: c.suspends})
	c.want(letterSuspend)
	c.revokeOutbound()
	return nil
}

// pauseFor begins a hand-over: nothing of the stream leaves any more.
func (c *core) pauseFor(s *suspension) {
	c.susp, c.fast = s, false
	c.line.state = max(c.line.state, linePaused)
}

// quiet reports that no transfer of this end is under way.
func (c *core) quiet() bool { return c.ownOver() && c.buffer != bufferOut }

// sendSuspend says what there is to say about a hand-over, and reports that it is settled.
func (c *core) sendSuspend() bool {
	s := c.susp
	switch {
	case s == nil || s.state != suspDue:
		return true
	case c.wanted(letterGoOn) || !c.announced || !c.quiet() || !c.roomFor(ticketSize):
		return false
	}
	s.state = suspSent
	switch {
	case s.role == active:
		c.post(kindSuspend, 0, s.number, 0, nil, true)
	case s.ticket == nil:
		c.post(kindSuspended, 0, s.number, 0, nil, true)
		c.endSuspend()
	default:
		c.post(kindSuspended, 0, s.number, 0, s.ticket.append(nil), true)
		c.line.state = max(c.line.state, lineQuiet)
	}
	return true
}

// suspendAsked acts on the peer's wish to be handed over.
func (c *core) suspendAsked(number uint64) error {
	switch {
	case c.features&featureHandover == 0:
		return protocolError("hand-over without agreement")
	case c.in.active, c.peer != peerThere:
		return protocolError("hand-over in the middle of an offer, or after the end")
	case c.life >= lifeCloseSent:
		return nil // the peer will find out
	}
	if s := c.susp; s != nil && !s.over() {
		switch {
		case s.role == passive:
			return protocolError("hand-over %d while %d is under way", number, s.number)
		case s.state >= suspSent && !c.dialer:
			return nil // the dialer gives way
		case s.state >= suspSent:
			c.callOff(s.number) // the peer may have thought better of its own before it saw ours
		}
		s.err = ErrHandoverBusy
		c.endSuspend()
	}
	c.pauseFor(&suspension{role: passive, number: number})
	c.revokeOutbound()
	return nil
}

// opened notes where the passive end can be found; nil: nowhere.
func (c *core) opened(t *ticket) {
	c.fast = false
	c.susp.ticket, c.susp.state = t, suspDue
	c.want(letterSuspend)
}

// suspendAnswered acts on the peer's answer: it has stopped, or cannot.
func (c *core) suspendAnswered(number uint64, payload []byte) (err error) {
	s := c.susp
	asked := s != nil && s.role == active && s.number == number
	switch {
	case !asked && (number == 0 || number > c.suspends), asked && s.state < suspSent:
		return protocolError("hand-over %d answered unasked", number)
	case !asked || s.over():
		return nil // it was called off, or gave way
	case len(payload) == 0:
		s.state, s.err = suspAnswered, ErrHandoverBusy
		return nil
	case c.in.active || s.ticket != nil:
		return protocolError("hand-over answered in the middle of an offer, or twice")
	}
	t, err := parseTicket(payload)
	if err == nil {
		s.state, s.ticket = suspAnswered, &t
	}
	return err
}

// stay calls s, a hand-over of this end, off.
func (c *core) stay(s *suspension) {
	if c.susp != s || s.over() || s.role == passive {
		return
	}
	sent := s.state >= suspSent
	c.endSuspend()
	if sent && c.line.state != lineEnded {
		c.callOff(s.number)
	}
}

// callOff has the peer told that this end stays.
func (c *core) callOff(number uint64) {
	c.goOn = number
	c.want(letterGoOn)
}

// wentOn acts on the peer's word that it stays.
func (c *core) wentOn(number uint64) {
	if s := c.susp; s != nil && s.role == passive && s.number == number {
		c.endSuspend()
	}
}

// endSuspend goes on with this line.
func (c *core) endSuspend() {
	if c.susp.over() {
		return
	}
	c.susp.state, c.fast = suspOver, false
	c.cancel(letterSuspend)
	if c.line.state <= lineQuiet {
		c.line.state = lineUp
	}
}

// suspendBroken is why there will be no answer to a hand-over of this end.
func (c *core) suspendBroken() error {
	switch {
	case c.err != nil:
		return c.err
	case c.peer != peerThere, c.line.state == lineEnded, c.life >= lifeClosing && c.life < lifeSettling:
		return net.ErrClosed
	}
	return nil
}

// rebound is the core of a session's passive end, c, on another line, where fresh has been negotiated. What c had
// received has been copied from the old line's memory.
func (c *core) rebound(fresh *core) {
	old := *c
	c.line, c.outbox = fresh.line, fresh.outbox
	c.susp, c.fast = fresh.susp, false
	if old.buffer != bufferNone {
		c.buffer = bufferDone
	}
	// Transfers are over, but who waited for them may not have noticed.
	c.in = inbound{id: old.in.id, piece: piece{got: old.in.got, over: old.in.over}}
	c.out = outbound{active: old.out.active, id: old.out.id, p: old.out.p, taken: old.out.taken, over: old.out.over,
		direct: old.out.direct}
	c.cache = old.cache
	c.stats.MessagesReceived += old.received
	c.stats.MessagesSent += old.sent
	c.repeat()
}

// repeat has letters sent again that the old line may have lost, or had not sent.
func (c *core) repeat() {
	if c.urg != nil && c.urg.taken > 0 {
		c.want(letterTaken)
	}
	switch {
	case c.life == lifeClosing:
		c.want(letterClose)
	case c.writing == writeEnding:
		c.want(letterFin)
	}
}

// unbind ends the use of the old endpoint, which is closed: what was received moves to memory of our own. It returns
// the regions of which the application still keeps buffers.
func (c *core) unbind() (kept [2]receives, lent int) {
	for i := range c.queue.Len() {
		it := c.queue.Pop()
		if it.gen < 0 {
			c.queue.Push(it)
			continue
		}
		c.keep(it.data, i > 0)
		c.recv[it.gen].held--
	}
	c.line.close()
	return c.recv, c.lent
}

// oldRegions are receive regions of an endpoint that is closed, of which the application keeps buffers.
type oldRegions struct {
	ep   provider.Endpoint
	recv [2]receives
	lent int
}

// returned takes back a piece, and reports that it was the last one.
func (o *oldRegions) returned(it item) (last bool) {
	o.recv[it.gen].held--
	o.recv[it.gen].release(o.ep)
	o.lent--
	return o.lent == 0
}
