package session

import (
	"math"
	"sync/atomic"
	"time"
)

// clockBase makes instants comparable as integers, on the monotonic clock.
var clockBase = time.Now()

func monotonic() int64 { return int64(time.Since(clockBase)) }

const never = math.MaxInt64

// deadline ends the waits of one direction. Setting it takes no timer: the sleeper starts one, so that programs which
// move deadlines with every request do it for the price of a store.
type deadline struct {
	at    atomic.Int64 // on the monotonic clock, or never
	timer *time.Timer  // wakes the sleeper; used with Conn.mu held
}

// deadlineNever is one that nobody sets.
var deadlineNever = func() (d deadline) { d.at.Store(never); return }()

// set moves the deadline. A sleeper has to be woken afterwards.
func (d *deadline) set(t time.Time) {
	if t.IsZero() {
		d.at.Store(never)
		return
	}
	// In this order, as it may be late but not early. Saturating, as t may be centuries away.
	until := int64(time.Until(t))
	now := monotonic()
	if until > 0 && now > never-1-until {
		d.at.Store(never - 1)
		return
	}
	d.at.Store(now + until)
}

func (d *deadline) expired() bool {
	at := d.at.Load()
	return at != never && at <= monotonic()
}

// alarm makes the waiter wake at the deadline.
func (d *deadline) alarm(w *waiter) {
	at := d.at.Load()
	if at == never {
		return
	}
	in := time.Duration(at - monotonic())
	if d.timer == nil {
		d.timer = time.AfterFunc(in, func() { w.wake() })
	} else {
		// A timer that was left running from an earlier sleep wakes too early at worst.
		d.timer.Reset(in)
	}
}

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
	}
}
