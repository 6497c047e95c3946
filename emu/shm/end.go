//go:build linux

package shm

import (
	"sansock/internal/regtable"
	"sansock/provider"
)

// A side that ends a connection says so by an event, the last one that it sends, and touches
// nothing of the connection from then on. What the two share is given back where both have said it.
// A peer that waits for something is woken. One that does not has ended too, or looks sooner or
// later: it is marked, and finds the event when its dispatcher is rung the next time. So the second
// of the two ends wakes nobody. Should nothing ring meanwhile, the reaper looks.
//
// Before its request is accepted the dialer knows no inbox, and says it over the socket.

// A peer that is rung about an end answers, unless it is stopped, or hostile. A link that has only
// ends which wait for such a peer is of no use to anybody, and is ended: what was sent is in the
// peer's memory.

// tell says that we have ended. Called with mu held.
func (e *endpoint) tell(cause provider.Status) {
	if e.out.events == nil {
		e.l.sendFin(e.id, cause)
		e.replied(cause)
	} else {
		e.in.arm.Store(0) // the peer's end need not wake us
		// The arming is taken before the last event, after which the inbox may be another
		// connection's. A peer that arms between the two, and does not see the event, is rung by
		// the reaper.
		w := e.takeArming()
		e.give(evFin, 0, int(cause), 0)
		if w != 0 {
			e.ringFor(w)
		} else {
			e.l.peerHdr.mark(e.id)
		}
	}
	e.seek()
	if e.stage != stageGone {
		e.l.expect(e)
	}
}

// takeArming takes the peer's arming, however it is armed; 0 if it is not. Called with mu held.
func (e *endpoint) takeArming() uint64 {
	w := e.out.arm.Load()
	if w == 0 || !e.out.arm.CompareAndSwap(w, 0) {
		return 0
	}
	return w
}

// ringFor rings for an arming that was taken. Called with mu held.
func (e *endpoint) ringFor(w uint64) {
	if w&parked != 0 {
		ringBell(e.l.parking.peer)
	} else {
		e.l.post(e.id)
	}
}

// seek looks for the peer's end, behind what it had sent before it knew of ours. Called with mu
// held.
func (e *endpoint) seek() {
	if !e.over() || e.stage == stageGone {
		return
	}
	for i := range uint32(slots) {
		w := e.in.events[(e.in.taken+i)%slots].Load()
		if !current(w, e.in.taken+i) {
			return
		}
		if k, _, _ := unpackEvent(w); k == evFin {
			e.depart()
			return
		}
	}
}

// settle looks whether the peer has ended.
func (e *endpoint) settle() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.drain(device)
	e.seek()
}

// causeOf is what a peer's word on why it has ended is taken for.
func causeOf(s provider.Status) provider.Status {
	switch s {
	case provider.StatusTooLong, provider.StatusNotReady, provider.StatusAccess, provider.StatusLink:
		return s
	}
	return provider.StatusDisconnected
}

// end ends the connection here, for a reason that the peer hears, too. From here on nothing shared
// is touched. Called with mu held.
func (e *endpoint) end(cause provider.Status) {
	if e.over() {
		return
	}
	from := e.stage
	if e.stage = stageOver; from == stageAsked {
		e.stage = stageLeft
	}
	e.in.first, e.in.kept = firstTaken, nil
	if e.last.cause = cause; !e.closed {
		e.last.stage = lastPending
	}
	for i := range e.in.recvs.Len() {
		r := e.in.recvs.At(i)
		e.table.Slots[r.slot].Posted--
		if r.bounce != nil {
			e.free(bounced(r))
			r.bounce = nil
		}
	}
	for i := 0; e.reqs != nil && i < maxRDMAs; i++ {
		if q := &e.reqs[i]; q.op != 0 {
			if q.slot != regtable.None {
				e.table.Slots[q.slot].Posted--
			}
			e.free(q.stage)
			q.stage, q.local = block{}, nil
		}
	}
	e.rouse(true)
	if e.park.here {
		e.Interrupt() // also if it is not armed, as in Close
	}
	if from == stageEarly { // there is nobody to tell, and the link does not know of it
		e.giveBack()
		return
	}
	e.tell(cause)
}

// depart ends what the peer was doing: it touches nothing shared any more. Called with mu held,
// after end, or where there was no connection.
func (e *endpoint) depart() {
	if e.stage == stageGone {
		return
	}
	e.giveBack()
	e.l.forget(e)
}

// giveBack gives back what was shared, which neither side touches any more. Called with mu held.
func (e *endpoint) giveBack() {
	e.stage = stageGone
	for _, b := range e.mem.stale {
		e.l.arena.release(b)
	}
	e.mem.stale = nil
	e.l.arena.release(e.in.blk)
	e.in.inbox, e.out.inbox, e.in.blk = inbox{}, inbox{}, block{}
}

// left is called when the peer does not touch anything any more: it has ended the connection, or is
// dead, which is StatusExited.
func (e *endpoint) left(cause provider.Status) {
	e.mu.Lock()
	e.drain(device) // what had arrived before
	if cause == provider.StatusExited && !e.over() {
		cause = e.will()
	}
	e.end(cause)
	e.depart()
	e.mu.Unlock()
}

// Close implements provider.Endpoint.
func (e *endpoint) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.waiter.Forget()
	e.disarm()
	e.closed = true
	e.drain(device)
	e.end(provider.StatusDisconnected)
	for i := range e.table.Slots {
		if s := &e.table.Slots[i]; s.State == regtable.Live {
			s.Rights = 0
			if !s.Common {
				s.Bytes = nil
			}
		}
	}
	return nil
}

// will is how a peer has ended that is dead, and did not say so: whether it had read all that we
// had sent. Called with mu held.
func (e *endpoint) will() provider.Status {
	if e.out.unread == nil {
		return provider.StatusDisconnected // it has never accepted
	}
	if e.out.unread.Load() != 0 {
		return provider.StatusExitedUnread
	}
	for i := range e.out.events {
		if e.out.events[i].Load()&open != 0 {
			return provider.StatusExitedUnread
		}
	}
	return provider.StatusExited
}
