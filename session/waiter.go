package session

import (
	"sync/atomic"

	"sansock/provider"
)

// waiter lets one goroutine sleep until another wakes it:
//
//	w.park()
//	if there is something to do { w.unpark() } else { w.wait() }
//
// Whoever makes something to do calls wake afterwards. A token is in ch only between a wake that found the waiter
// parked and the wait or unpark that takes it, so none is ever left over for a later sleep.
//
// Between park and wait it may take a seat, to sleep in the provider instead.
type waiter struct {
	state   atomic.Uint32
	ch      chan struct{}                    // capacity 1
	sleeper atomic.Pointer[provider.Sleeper] // nil: the provider has none
	seat    atomic.Pointer[provider.Sleeper] // that it is seated in: sleeper changes with a hand-over
}

const (
	awake  = iota
	parked // wake puts a token into ch
	seated // wake interrupts the provider's Sleep
)

func (w *waiter) park() { w.state.Store(parked) }

// parked reports whether somebody sleeps, or is about to.
func (w *waiter) parked() bool { return w.state.Load() != awake }

func (w *waiter) unpark() {
	if !w.state.CompareAndSwap(parked, awake) {
		<-w.ch
	}
}

func (w *waiter) wait() { <-w.ch }

// sit takes the seat, which rise gives back, and returns it, nil if there is none. A wake that came before has to be
// looked for with unpark then.
func (w *waiter) sit() provider.Sleeper {
	p := w.sleeper.Load()
	if p == nil || !(*p).Seat() {
		return nil
	}
	w.seat.Store(p) // before wake can find it seated
	if w.state.CompareAndSwap(parked, seated) {
		return *p
	}
	(*p).Sleep(true)
	return nil
}

// rise sleeps in the seat, unless there is something to do already.
func (w *waiter) rise(seat provider.Sleeper, ready bool) {
	seat.Sleep(ready)
	// A wake that comes in between interrupts a later Sleep, which returns for no reason then.
	w.state.Store(awake)
}

// wake reports whether somebody was parked.
func (w *waiter) wake() bool {
	switch {
	case w.state.Load() == awake:
		return false
	case w.state.CompareAndSwap(parked, awake):
		w.ch <- struct{}{}
		return true
	case w.state.CompareAndSwap(seated, awake): // in this order, as it sits down after it has parked
		(*w.seat.Load()).Interrupt()
		return true
	}
	return false
}
