package emu

import (
	"time"

	"sansock/internal/alarm"
)

// Completions makes completions come late and in batches. The zero value reports each at once.
type Completions struct {
	Delay time.Duration // how long a completion waits at most; 0 with a Batch: 1 ms
	Batch int           // how many end the wait; 0: no number
}

// slow holds the completions of one endpoint back. The endpoint's mutex guards it.
type slow struct {
	Completions
	alarm alarm.Alarm
	set   bool
	fires func() // what the alarm calls
}

// newSlow is for e. It returns nil where nothing is held back.
func newSlow(c Completions, e *endpoint) *slow {
	if c.Delay <= 0 {
		if c.Batch <= 1 {
			return nil
		}
		c.Delay = time.Millisecond
	}
	s := &slow{Completions: c}
	s.fires = func() { s.fire(e) }
	return s
}

// hold hides the completion that has just been queued, or shows all when the batch is full. It
// reports whether to call callWake. Called with the lock held.
func (s *slow) hold(e *endpoint, urgent bool) bool {
	if e.gate&gateOver != 0 {
		return e.rouse(urgent)
	}
	e.cq.hidden++
	if s.Batch > 0 && int(e.cq.hidden) >= s.Batch {
		return e.reveal()
	}
	if !s.set {
		s.set = true
		s.alarm.Set(s.Delay, s.fires)
	}
	return false
}

func (s *slow) fire(e *endpoint) {
	e.lock()
	s.set = false
	wake := e.reveal()
	e.unlock()
	if wake {
		e.callWake()
	}
}

// reveal shows what is hidden, and reports whether to call callWake. Called with the lock held.
func (e *endpoint) reveal() bool {
	if e.cq.hidden == 0 {
		return false
	}
	urgent := false
	for i := e.cq.seen(); i < e.cq.ring.Len(); i++ {
		urgent = urgent || e.cq.ring.At(i).urgent
	}
	e.cq.hidden = 0
	return e.rouse(urgent)
}
