//go:build linux

package shm

import (
	"time"

	"sansock/provider"
)

// A side that ends a connection says so by an event, the last one that it sends, and touches nothing of the connection from
// then on. What the two share is given back where both have said it. A peer that waits for something is woken. One that does
// not has ended too, or looks sooner or later: it is marked, and finds the event when its dispatcher is rung the next time. So the
// second of the two ends wakes nobody. Should nothing ring meanwhile, the reaper looks.
//
// Before its request is accepted the dialer knows no inbox, and says it over the socket.

// A peer that is rung about an end answers, unless it is stopped, or hostile. A link that has only ends which wait for such a peer is
// of no use to anybody, and is ended: what was sent is in the peer's memory.

const (
	// reapTime is how long an end may wait to be looked at.
	reapTime = 100 * time.Millisecond

	// patience is how long it may wait for a peer that was rung, if the link is of no other use.
	patience = 2 * time.Second
)

// tell says that we have ended. Called with mu held.
func (e *endpoint) tell(cause provider.Status) {
	switch {
	case e.early: // there is nobody to tell
		e.gone = true
		return
	case e.out.events == nil:
		e.l.sendFin(e.id, cause)
		e.replied(cause)
	default:
		e.in.arm.Store(0) // the peer's end need not wake us
		// The arming is taken before the last event, after which the inbox may be another connection's. A peer that arms
		// between the two, and does not see the event, is rung by the reaper.
		w := e.takeArming()
		e.give(evFin, 0, int(cause), 0)
		if w != 0 {
			e.ringFor(w)
		} else {
			e.l.peerHdr.mark(e.id)
		}
	}
	e.seek()
	if !e.gone {
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
	if w&seated != 0 {
		ringBell(e.l.seat.peer)
	} else {
		e.l.post(e.id)
	}
}

// seek looks for the peer's end, behind what it had sent before it knew of ours. Called with mu held.
func (e *endpoint) seek() {
	if !e.over || e.gone {
		return
	}
	for i := range uint32(slots) {
		w := e.in.events[(e.head+i)%slots].Load()
		if !current(w, e.head+i) {
			return
		}
		if k, _, _ := unpackEvent(w); k == evFin {
			e.gone = true
			e.retire()
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

// expect has the reaper look after e. Called with the endpoint's mu held.
func (l *link) expect(e *endpoint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return
	}
	e.expected = true
	l.expected++
	l.ending = append(l.ending, e)
	if len(l.ending) > 1 {
		return
	}
	l.reaper.Set(reapTime, l.reap)
}

// reap looks after the connections that have ended here. Where the peer has not, it is rung, as it may not be waiting for anything,
// and we are armed, so that its end rings.
func (l *link) reap() {
	l.mu.Lock()
	ending := l.ending
	l.ending = nil
	l.mu.Unlock()
	var late *endpoint
	for _, e := range ending {
		e.mu.Lock()
		if e.seek(); !e.gone {
			e.in.arm.Swap(uint64(provider.WakeAny)) // see words
			if e.seek(); !e.gone {
				l.post(e.id)
				late = e
			}
		}
		e.mu.Unlock()
	}
	if late != nil {
		l.await(late)
	}
}

// await sees to it that the link does not wait for ever for the peer to end e, which has been rung for.
func (l *link) await(e *endpoint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead || l.waits() {
		return // for another one
	}
	l.late, l.lateFor = e, 0
	l.patience.Set(patience, l.lose)
}

// waits reports whether the peer has not ended late. Called with mu held.
func (l *link) waits() bool { return l.late != nil && l.conns[l.late.id] == l.late }

// lose ends the link if the peer has not ended late, and nothing else goes over it.
func (l *link) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.dead:
	case !l.waits():
		l.late, l.lateFor = nil, 0
	case l.used == l.expected && len(l.asked) == 0:
		l.abort()
	default:
		l.lateFor += patience
		l.patience.Set(patience, l.lose)
	}
}
