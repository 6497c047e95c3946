//go:build ofi && cgo && linux

package ofi

import (
	"runtime"
	"sync/atomic"
	"time"

	"sansock/provider"
)

// A completion that run takes has to wait until the poller has woken run, and run its reader. Who waits can look for himself
// instead, which is worth while if the peer answers sooner than all that takes, and if nobody else is kept waiting. So
// one waiter of a process may spin, while it is the only one that waits at all and a processor remains for the others. After
// a miss the next try has to wait, and is longer: long enough to find a peer spinning that has to be woken first.
const (
	spinTime   = 150 * time.Microsecond
	probeTime  = 300 * time.Microsecond
	probeFirst = 32 // waits until the next try after a miss, twice as many after each that misses again
	probeLast  = 1024
	soloWaits  = 8 // waits in a row by the same endpoint make it the only one
	scoreLimit = 8
	procsEvery = 64 // waits after which GOMAXPROCS is looked at again
)

// spinning is of the whole process.
var spinning struct {
	busy  atomic.Bool
	last  atomic.Pointer[endpoint]
	run   atomic.Uint32 // waits of last in a row
	procs atomic.Int32
}

// maySpin reports whether e may spin, and is the only one to. Then spun has to be called.
func maySpin(e *endpoint) bool {
	if spinning.last.Load() != e {
		spinning.last.Store(e)
		spinning.run.Store(0)
		return false
	}
	run := spinning.run.Add(1)
	if run < soloWaits {
		return false
	}
	if run%procsEvery == soloWaits {
		spinning.procs.Store(int32(runtime.GOMAXPROCS(0)))
	}
	return spinning.procs.Load() > 1 && spinning.busy.CompareAndSwap(false, true)
}

func spun() { spinning.busy.Store(false) }

// score is how spinning has paid off for one endpoint. It is guarded by the endpoint's polling.
type score struct {
	n          int8
	wait, next uint16 // waits until the next try, and after that if it misses
}

// limit is how long to spin.
func (s *score) limit() time.Duration {
	switch {
	case s.n >= 0:
		return spinTime
	case s.wait > 0:
		s.wait--
		return 0
	}
	return probeTime
}

func (s *score) note(hit bool) {
	if hit {
		s.n, s.next = min(max(s.n, 0)+2, scoreLimit), 0
		return
	}
	if s.n = max(s.n-3, -1); s.n < 0 {
		s.next = min(max(2*s.next, probeFirst), probeLast)
		s.wait = s.next
	}
}

// Spin implements provider.Spinner.
func (e *endpoint) Spin() (ready bool) {
	if e.ready.Load() > 0 || !maySpin(e) {
		return e.ready.Load() > 0
	}
	defer spun()
	e.polling.Lock()
	limit := e.spins.limit()
	if e.gone || limit == 0 {
		e.polling.Unlock()
		return e.ready.Load() > 0
	}
	n, err := e.c.spin(limit)
	wake := e.settle(n)
	ready = e.ready.Load() > 0
	e.spins.note(ready)
	e.polling.Unlock()
	if wake != nil {
		wake()
	}
	if err != nil {
		e.lose(provider.StatusLink)
	} else if e.lost.Load() {
		e.sleeper.kick()
	}
	return ready
}
