//go:build linux

package shm

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// parking lets one waiter of a link sleep with a doorbell of its own, so that it is woken without
// the dispatcher, whose hop costs as much as all the rest. Only a waiter that is alone gets it:
// where there are many, the dispatcher wakes them in one go.
//
// No wake-up is lost. The sleeper arms with the parked bit, then drains, and only then waits; the
// peer stores its event, then takes the arming, and then rings. So either the sleeper's drain finds
// the event, or the peer finds the arming. The netpoller keeps an edge from before unparked looked
// for the waiting after it. A ring for an arming from before, or for another endpoint, costs one
// more look. What wakes from this side, which is Interrupt, trusts nothing that is shared with the
// peer: it may drain or fill the counter of the eventfd, and change its flags.
type parking struct {
	taken  atomic.Bool
	abused atomic.Bool // the peer rings for nothing
	fresh  bool        // unparked is called for the first time; of who has taken it, like idle
	idle   int         // false rings in a row
	bell   *os.File
	conn   syscall.RawConn
	peer   int // the peer's
}

// spot is what an endpoint has of the parking.
type spot struct {
	here   bool               // it has it; guarded by mu
	roused atomic.Bool        // by Interrupt
	done   func(uintptr) bool // unparked, made once; these two are of who is parked
	seen   uint32             // events taken when unparked was called last
}

// open makes the doorbell and returns its descriptor.
func (s *parking) open() (fd int, err error) {
	if s.bell, fd, err = newBell(); err != nil {
		return -1, err
	}
	s.conn, err = s.bell.SyscallConn()
	return fd, err
}

// Seat implements provider.Sleeper.
func (e *endpoint) Seat() bool {
	s := &e.l.parking
	if !e.waiter.Alone() || s.abused.Load() || !s.taken.CompareAndSwap(false, true) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over() { // nothing comes any more, so that Sleep would return at once, time and again
		s.taken.Store(false)
		return false
	}
	e.park.here = true
	e.armed.stands.Store(0) // the arming has to say so
	if e.park.done == nil {
		e.park.done = func(uintptr) bool { return e.unparked() }
	}
	return true
}

// Sleep implements provider.Sleeper.
func (e *endpoint) Sleep(ready bool) {
	s := &e.l.parking
	if !ready {
		s.fresh = true
		// It fails when the link has ended, or after an Interrupt, perhaps one that found nobody. A
		// further Interrupt whose deadline is lifted here has set roused before.
		if err := s.conn.Read(e.park.done); errors.Is(err, os.ErrDeadlineExceeded) {
			s.bell.SetReadDeadline(time.Time{})
		}
	}
	e.mu.Lock()
	e.park.here = false
	if !e.over() && e.in.arm.Load() == 0 {
		e.disarm()
	}
	e.mu.Unlock()
	if s.abused.Load() {
		s.bell.Close() // further rings cost nothing
	}
	s.taken.Store(false)
}

// unparked reports whether Sleep is over. The peer rings after it has taken the arming.
func (e *endpoint) unparked() bool {
	if e.park.roused.Swap(false) {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over() {
		return true
	}
	s := &e.l.parking
	arrived := e.arrived()
	switch {
	case arrived || e.in.taken != e.park.seen: // for each event one rings, perhaps late
		s.idle = 0
	case s.fresh: // nobody has rung
	default:
		if s.idle++; s.idle > maxFalseRings {
			s.abused.Store(true)
			return true
		}
	}
	s.fresh = false
	e.park.seen = e.in.taken
	return arrived || e.in.arm.Load() == 0 // whatever a hostile peer has put there
}

// Interrupt implements provider.Sleeper.
func (e *endpoint) Interrupt() {
	e.park.roused.Store(true) // before the deadline, see Sleep
	e.l.parking.bell.SetReadDeadline(past)
}

var past = time.Unix(1, 0)
