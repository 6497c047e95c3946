//go:build linux

package shm

import (
	"sansock/internal/spin"
	"sansock/provider"
)

// replied ends the dial of e, if it waits, with an error.
func (e *endpoint) replied(err error) {
	if e.dial.answer != nil {
		select {
		case e.dial.answer <- err:
		default:
		}
	}
}

// welcomed notes that the peer has accepted, and where its inbox is. Called with mu held.
func (e *endpoint) welcomed(place ptr) bool {
	b, ok := e.l.theirs.at(place, inboxSize)
	if !ok {
		return false
	}
	e.stage = stageOpen
	e.out.inbox = view(b)
	e.in.arm.Swap(e.arming()) // what was there was for this; see words
	e.replied(nil)
	return true
}

// look reports whether the peer has accepted, or the dial is over.
func (e *endpoint) look() bool {
	e.lockDrained(device)
	defer e.mu.Unlock()
	return e.stage > stageAsked
}

// glance looks for the answer for a moment, under the rules for spinning, by yielding.
func (e *endpoint) glance() bool {
	if !spin.Begin() {
		return false
	}
	defer spin.End()
	if !e.yield(&e.l.dialing, e.look) {
		return false
	}
	// Nobody else spins, and it pays off: so will it for what the dialer waits for next.
	e.waiter.Favour()
	return true
}

// refused acts on the refusal of the request of e. An error ends the link.
func (e *endpoint) refused(c *control) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stage != stageAsked && e.stage != stageLeft {
		return errWire
	}
	st := c.status
	switch st {
	case provider.StatusRefused, provider.StatusNoListener, provider.StatusAddrInUse, provider.StatusNoMemory,
		provider.StatusLimit:
	default:
		st = provider.StatusLink
	}
	e.replied(&provider.Error{Status: st, Reason: append([]byte(nil), c.reason...)})
	// There is no connection, and the peer expects no word of its end.
	e.depart()
	return nil
}
