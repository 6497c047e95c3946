package emu

import (
	"runtime"
	"sync/atomic"
)

// lockWord is the mutex of an endpoint together with the few facts that are of interest to those
// who do not hold it: a locked instruction is most of the price of a small operation, and so an
// empty Poll needs none, Arm one, and a send that wakes the peer one less than with a sync.Mutex
// and a counter.
//
// The word is written by adding to it, so that the holder changes its parts while others change
// theirs.
type lockWord struct {
	state atomic.Uint32
	delta uint32 // what unlock adds besides; the holder's
	park  atomic.Pointer[chan struct{}]
}

// The parts of lockWord.state.
const (
	lockHeld      uint32 = 1 << iota
	lockContended        // somebody sleeps on park
	lockSome             // Poll may find something; changed by unlock alone
	lockClosing          // Close waits for the wakers
	lockArmed            // two bits, a provider.Wake; changed by the holder, and by Arm if the lock is free
	_
	lockWaker // the rest counts the calls of the wake function under way

	armedMask = 3 * lockArmed
)

// lock takes the endpoint's lock.
func (e *endpoint) lock() {
	if s := e.state.Load() &^ lockHeld; !e.state.CompareAndSwap(s, s|lockHeld) {
		e.lockSlow()
	}
}

// lockSpins is how often lockSlow looks before it sleeps. The lock is held for less than a copy of
// copyUnderLock bytes takes, unless its holder has lost the processor.
const lockSpins = 40

func (e *endpoint) lockSlow() {
	var also uint32 // after a sleep: there may be other sleepers, who need the next unlock
	for spin := 0; ; spin++ {
		s := e.state.Load()
		switch {
		case s&lockHeld == 0:
			if e.state.CompareAndSwap(s, s|lockHeld|also) {
				return
			}
		case spin < lockSpins:
			for range 20 { // leave the cache line to the holder
			}
		case spin == lockSpins:
			runtime.Gosched()
		default:
			if e.park.Load() == nil {
				c := make(chan struct{}, 1)
				e.park.CompareAndSwap(nil, &c)
			}
			if e.state.CompareAndSwap(s, s|lockContended) {
				<-*e.park.Load()
				also = lockContended
			}
		}
	}
}

// unlock releases the endpoint's lock, and says with the same instruction whether there is
// something to poll.
func (e *endpoint) unlock() {
	d := e.delta - lockHeld
	e.delta = 0
	some := e.cq.seen() > 0 || e.gate&gateOver != 0
	if some != (e.state.Load()&lockSome != 0) {
		if some {
			d += lockSome
		} else {
			d -= lockSome
		}
	}
	if e.state.Add(d)&lockContended != 0 {
		e.handOver()
	}
}

// handOver wakes one sleeper. The token stays if none is asleep yet, and then ends a later sleep
// early, which is harmless.
func (e *endpoint) handOver() {
	e.state.And(^lockContended)
	select {
	case *e.park.Load() <- struct{}{}:
	default:
	}
}

// work is what is under way without the lock.
type work struct {
	own   int32         // operations of the endpoint's, in some goroutine
	peers int32         // accesses of the peer to our memory
	fell  chan struct{} // closed when a count, or copying of receives, falls; nil: nobody waits
}

// wait releases the lock until a count has fallen. Called with the lock held, which it holds again
// when it returns.
func (e *endpoint) wait() {
	if e.work.fell == nil {
		e.work.fell = make(chan struct{})
	}
	c := e.work.fell
	e.unlock()
	<-c
	e.lock()
}

// signal ends every wait. Called with the lock held.
func (e *endpoint) signal() {
	if e.work.fell != nil {
		close(e.work.fell)
		e.work.fell = nil
	}
}
