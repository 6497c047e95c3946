//go:build linux

package shm

import "sansock/provider"

// OnWake implements provider.Endpoint.
func (e *endpoint) OnWake(wake func()) {
	e.mu.Lock()
	e.armed.wake = wake
	e.mu.Unlock()
}

// Arm implements provider.Endpoint.
func (e *endpoint) Arm(w provider.Wake) (ready bool) {
	if w != 0 && e.armed.stands.Load() == uint32(w) {
		return false // what has arrived since will wake, or has, as it would if it came now
	}
	e.mu.Lock()
	e.armed.stands.Store(0)
	e.armed.looking = true // what it finds it reports
	if !e.closed {
		e.armed.mode = w
		if word := e.arming(); !e.over() && e.in.arm.Load() != word {
			e.in.arm.Swap(word) // see words
		}
	}
	behind := e.drain(device) == later
	ready = behind || e.waiting(w)
	e.armed.looking = false
	if !ready && !e.park.here {
		e.armed.stands.Store(uint32(e.armed.mode))
	}
	e.mu.Unlock()
	return ready
}

// arming is the word that tells the peer when to ring, and where. Called with mu held.
func (e *endpoint) arming() uint64 {
	w := uint64(e.armed.mode)
	if e.park.here {
		w |= parked
	}
	return w
}

// waiting reports whether Poll would return something that w covers. Called with mu held.
func (e *endpoint) waiting(w provider.Wake) bool {
	if w != provider.WakeAny && w != provider.WakeSolicited {
		return false
	}
	if e.over() && (e.in.recvs.Len() > 0 || e.last.stage == lastPending || e.stuck()) {
		return true
	}
	return e.cq.urgent > 0 || w == provider.WakeAny && e.cq.ring.Len() > 0
}

// rouse uses up the arming if a completion is covered by it. Called with mu held.
func (e *endpoint) rouse(urgent bool) {
	if e.armed.looking || e.armed.mode != provider.WakeAny && (e.armed.mode != provider.WakeSolicited || !urgent) {
		return
	}
	e.disarm()
	if !e.over() {
		e.in.arm.Store(0)
	}
	if e.armed.wake != nil {
		e.armed.wake()
	}
}

// disarm notes that the arming is used up. Called with mu held.
func (e *endpoint) disarm() {
	e.armed.mode = 0
	e.armed.stands.Store(0)
}

// attend is what the doorbell leads to: the device's own work, and a wake-up if that is due.
// Whatever the peer has done with the word by which we are armed, ours is the one that counts. It
// reports whether anything has come since it was called last, perhaps taken by others already: an
// honest peer marks a connection after an event.
func (e *endpoint) attend() (news bool) {
	e.lockDrained(device)
	e.seek()
	if e.armed.mode != 0 && e.waiting(e.armed.mode) {
		e.rouse(true)
	} else if e.armed.mode != 0 && !e.over() {
		e.in.arm.Swap(e.arming()) // see words
		e.drain(device)
	}
	news = e.stage == stageGone || e.in.taken != e.in.attended
	e.in.attended = e.in.taken
	e.mu.Unlock()
	return news
}
