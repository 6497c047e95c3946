// Package spin elects the one goroutine of a process that may spin while it waits, whatever provider it waits for. Looking
// again is worth while only if nobody else is kept waiting: so it is for a waiter that is the only one, for one
// at a time, and not where there is a single processor.
package spin

import (
	"runtime"
	"sync/atomic"
)

const (
	// SoloWaits in a row by the same Waiter make it the only one.
	SoloWaits = 8

	// procsEvery is after how many waits GOMAXPROCS is looked at again.
	procsEvery = 16
)

// Waiter is somebody who waits time and again, such as an endpoint. It is told from others by its address.
type Waiter struct {
	_ byte
}

// process is the state of the election.
var process struct {
	busy   atomic.Bool // somebody spins
	last   atomic.Pointer[Waiter]
	run    atomic.Uint32 // waits of last in a row
	procs  atomic.Int32
	pinned atomic.Bool // last stays, see Pin
}

// Turn is what a Waiter may do.
type Turn uint8

const (
	Queue Turn = iota // sleep: others wait too, or did so a moment ago
	Look              // look once: it is the only one, but there is nothing to spin on, or somebody else does
	Spin              // spin, and call End
)

// Wait notes that w is about to wait, and says what it may do before it sleeps.
func (w *Waiter) Wait() Turn {
	if process.last.Load() != w {
		if !process.pinned.Load() {
			process.last.Store(w)
			process.run.Store(0)
		}
		return Queue
	}
	run := process.run.Add(1)
	if run < SoloWaits {
		return Queue
	}
	if run%procsEvery == SoloWaits {
		process.procs.Store(int32(runtime.GOMAXPROCS(0)))
	}
	if process.procs.Load() < 2 || !process.busy.CompareAndSwap(false, true) {
		return Look
	}
	return Spin
}

// Begin is for who spins without being a Waiter: it reports whether that may be, and then End has to be called.
func Begin() bool {
	return runtime.GOMAXPROCS(0) > 1 && process.busy.CompareAndSwap(false, true)
}

// End follows spinning.
func End() { process.busy.Store(false) }

// Alone reports whether w is the only one that waits.
func (w *Waiter) Alone() bool {
	return process.last.Load() == w && process.run.Load() >= SoloWaits
}

// Favour makes w the only one that waits, until others do.
func (w *Waiter) Favour() {
	if process.pinned.Load() {
		return
	}
	process.procs.Store(int32(runtime.GOMAXPROCS(0)))
	process.last.Store(w)
	process.run.Store(SoloWaits)
}

// Forget lets go of a Waiter that will not wait again.
func (w *Waiter) Forget() { process.last.CompareAndSwap(w, nil) }

// Pin makes w the only one that waits whatever others do, until undo is called, or another one is pinned. It is for tests, which cannot wait for the
// election to choose whom they want.
func (w *Waiter) Pin() (undo func()) {
	process.pinned.Store(false)
	w.Favour()
	process.pinned.Store(true)
	return func() { process.pinned.Store(false) }
}
