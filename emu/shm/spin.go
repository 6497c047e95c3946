//go:build linux

package shm

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"sansock/internal/spin"
)

// Looking again is worth while for as long as being woken on another core costs, which is tens of
// microseconds, and only for whom package spin elects; first with pauses, which finds the answer of
// a peer on another core, then by yielding, which lets a peer on the same core answer. Either part
// is left out while it does not pay off: where the peer is cannot be known, and changes.
const (
	pauses      = 48
	pauseBatch  = 4
	probeEvery  = 32 // waits after which a part that did not pay off gets another chance
	scoreLimit  = 8
	yields      = 100                    // of some 600 ns: what it takes to be woken on another core
	probeYields = 200                    // after a miss: more than waking a peer takes, which then spins
	lending     = time.Microsecond       // a yield that takes longer has let somebody else run
	lendings    = 3                      // of these in one wait are enough: then waking costs no more
	yieldGuard  = 500 * time.Microsecond // a longer yield has given the core to who computes
	guardFirst  = 4 * time.Millisecond   // no yields for so long then
	guardLast   = time.Second
	guardMemory = 8 // a guard is longer than the last one within so many times that
)

var epoch = time.Now()

// score is how a part of spinning has paid off for one endpoint.
type score struct {
	n      int8
	missed bool // the last time
	misses uint8
}

// worth reports whether to try.
func (s *score) worth() bool {
	if s.n >= 0 {
		return true
	}
	s.misses++
	return s.misses%probeEvery == 0
}

func (s *score) note(hit bool) {
	if s.missed = !hit; hit {
		s.n = min(max(s.n, 0)+2, scoreLimit)
	} else {
		s.n = max(s.n-3, -1)
	}
}

// pace is how yields have paid off, for an endpoint or the dispatcher of a link. Whoever yields is
// the one that spins, which guards it.
type pace struct {
	score
	until, pause time.Duration // no yields before until; how long that was
}

// long takes notice of a yield that took long. It stops yields for a while, which gets longer if
// that happens again and again, and then they have to pay off once before they are the rule again.
func (p *pace) long(now time.Duration) {
	length := guardFirst
	if now-p.until < guardMemory*p.pause {
		length = min(2*p.pause, guardLast)
	}
	p.until, p.pause, p.n = now+length, length, -1
}

// Spin implements provider.Spinner.
func (e *endpoint) Spin() (ready bool) {
	switch e.waiter.Wait() {
	case spin.Queue:
		return false
	case spin.Look:
		return e.ready()
	}
	defer spin.End()
	if e.spins.pausing.worth() {
		for range pauses / pauseBatch {
			if e.ready() {
				e.spins.pausing.note(true)
				return true
			}
			pause(pauseBatch)
		}
		e.spins.pausing.note(false)
	}
	return e.yield(&e.spins.yielding, e.ready)
}

// yield is the second part of Spin. What it takes of the core is the yields, not the time in which
// others run meanwhile.
func (e *endpoint) yield(p *pace, ready func() bool) bool {
	now := time.Since(epoch)
	if now < p.until || !p.worth() {
		return ready()
	}
	limit := yields
	if p.missed {
		limit = probeYields
	}
	lent := 0
	for range limit {
		unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		before := now
		now = time.Since(epoch)
		if now-before > yieldGuard {
			p.long(now)
			return ready()
		}
		if ready() {
			p.note(true)
			return true
		}
		if now-before > lending {
			if lent++; lent == lendings {
				break
			}
		}
	}
	p.note(false)
	return false
}

// linger is what the dispatcher does before it sleeps, where many wait: it yields, first to those
// whom it has woken, then to the peer, and reports whether there is more to attend to. Meanwhile
// nobody rings. It is the one spinner of the process then.
func (l *link) linger() bool {
	if !l.lingering.worth() || !spin.Begin() {
		return false
	}
	defer spin.End()
	limit := yields
	if l.lingering.missed {
		limit = probeYields
	}
	for range limit {
		runtime.Gosched()
		if l.hdr.any() {
			l.lingering.note(true)
			return true
		}
		before := time.Since(epoch)
		if before < l.lingering.until {
			return false
		}
		unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		if now := time.Since(epoch); now-before > yieldGuard {
			l.lingering.long(now)
			return l.hdr.any()
		}
	}
	l.lingering.note(false)
	return false
}

// ready reports whether there is something to poll.
func (e *endpoint) ready() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cq.ring.Len() > 0 || e.over() {
		return e.cq.ring.Len() > 0 || e.in.recvs.Len() > 0 || e.last.stage == lastPending || e.stuck()
	}
	return e.arrived()
}

// arrived reports whether there is an event. Called with mu held.
func (e *endpoint) arrived() bool {
	return current(e.in.events[e.in.taken%slots].Load(), e.in.taken)
}
