//go:build ofi && cgo && linux

package ofi

import (
	"time"

	"sansock/internal/spin"
	"sansock/provider"
)

// A completion that run takes has to wait until the poller has woken run, and run its reader. Who waits can look for himself
// instead, which is worth while if the peer answers sooner than all that takes, for whom package spin elects. After
// a miss the next try has to wait, and is longer: long enough to find a peer spinning that has to be woken first.
const (
	spinTime   = 150 * time.Microsecond
	probeTime  = 300 * time.Microsecond
	probeFirst = 32 // waits until the next try after a miss, twice as many after each that misses again
	probeLast  = 1024
	scoreLimit = 8
)

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
	if e.ready.Load() > 0 || e.waiter.Wait() != spin.Spin {
		return e.ready.Load() > 0
	}
	defer spin.End()
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
