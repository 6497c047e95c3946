package session

import "sync/atomic"

// waiter lets one goroutine sleep until another wakes it:
//
//	w.park()
//	if there is something to do { w.unpark() } else { w.wait() }
//
// Whoever makes something to do calls wake afterwards. A token is in ch only between a wake that found the waiter
// parked and the wait or unpark that takes it, so none is ever left over for a later sleep.
type waiter struct {
	parked atomic.Bool
	ch     chan struct{} // capacity 1
}

func (w *waiter) park() { w.parked.Store(true) }

func (w *waiter) unpark() {
	if !w.parked.CompareAndSwap(true, false) {
		<-w.ch
	}
}

func (w *waiter) wait() { <-w.ch }

// wake reports whether somebody was parked.
func (w *waiter) wake() bool {
	if w.parked.Load() && w.parked.CompareAndSwap(true, false) {
		w.ch <- struct{}{}
		return true
	}
	return false
}
