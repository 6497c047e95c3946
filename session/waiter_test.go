package session

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"sansock/provider"
)

// bench is a Sleeper with one seat.
type bench struct {
	taken atomic.Bool
	sleep chan struct{}
}

func (b *bench) Seat() bool { return b.taken.CompareAndSwap(false, true) }

func (b *bench) Sleep(ready bool) {
	if !ready {
		<-b.sleep
	}
	b.taken.Store(false)
}

func (b *bench) Interrupt() {
	select {
	case b.sleep <- struct{}{}:
	default:
	}
}

// A waiter that sleeps in the seat, or in its channel as the other has it, misses no wake-up.
func TestWaiterSeat(t *testing.T) {
	b := &bench{sleep: make(chan struct{}, 1)}
	var s provider.Sleeper = b
	var w [2]waiter
	var work, done [2]atomic.Int64
	for i := range w {
		w[i].ch = make(chan struct{}, 1)
		w[i].sleeper.Store(&s)
	}
	const rounds = 20_000
	over := make(chan struct{})
	for i := range w {
		go func() {
			defer func() { over <- struct{}{} }()
			for n := int64(0); n < rounds; {
				w[i].park()
				if work[i].Load() > n {
					w[i].unpark()
				} else if seat := w[i].enter(); seat != nil {
					w[i].sleep(seat, work[i].Load() > n)
				} else if work[i].Load() > n {
					w[i].unpark()
				} else {
					w[i].wait()
				}
				if work[i].Load() > n {
					n++
					done[i].Store(n)
				}
			}
		}()
		go func() {
			defer func() { over <- struct{}{} }()
			for n := int64(1); n <= rounds; n++ {
				work[i].Store(n)
				w[i].wake()
				for done[i].Load() < n {
					runtime.Gosched()
					w[i].wake() // an interrupt may have hit the other one's sleep
				}
			}
		}()
	}
	for range 4 {
		<-over
	}
	for i := range w {
		assert.False(t, w[i].parked())
		assert.Empty(t, w[i].ch, "a wake-up was left over")
	}
}

// Who sleeps in the seat is woken there, also when the provider's endpoint has changed meanwhile, or has none any more.
func TestWaiterSeatChanges(t *testing.T) {
	old, fresh := &bench{sleep: make(chan struct{}, 1)}, &bench{sleep: make(chan struct{}, 1)}
	for _, next := range []*bench{fresh, nil} {
		var w waiter
		var s, n provider.Sleeper = old, next
		w.ch = make(chan struct{}, 1)
		w.sleeper.Store(&s)
		w.park()
		seat := w.enter()
		assert.Same(t, old, seat)
		if w.sleeper.Store(&n); next == nil {
			w.sleeper.Store(nil)
		}
		assert.True(t, w.wake())
		w.sleep(seat, false)
		assert.False(t, w.parked())
		assert.Empty(t, fresh.sleep)
	}
}
