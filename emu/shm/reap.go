//go:build linux

package shm

import (
	"time"

	"sansock/provider"
)

const (
	// reapTime is how long an end may wait to be looked at.
	reapTime = 100 * time.Millisecond

	// patience is how long it may wait for a peer that was rung, if the link is of no other use.
	patience = 2 * time.Second
)

// expect has the reaper look after e. Called with the endpoint's mu held.
func (l *link) expect(e *endpoint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return
	}
	e.expected = true
	l.expected++
	l.ending = append(l.ending, e)
	if len(l.ending) > 1 {
		return
	}
	l.reaper.Set(reapTime, l.reap)
}

// reap looks after the connections that have ended here. Where the peer has not, it is rung, as it
// may not be waiting for anything, and we are armed, so that its end rings.
func (l *link) reap() {
	l.mu.Lock()
	ending := l.ending
	l.ending = nil
	l.mu.Unlock()
	var late *endpoint
	for _, e := range ending {
		e.mu.Lock()
		if e.seek(); e.stage != stageGone {
			e.in.arm.Swap(uint64(provider.WakeAny)) // see words
			if e.seek(); e.stage != stageGone {
				l.post(e.id)
				late = e
			}
		}
		e.mu.Unlock()
	}
	if late != nil {
		l.await(late)
	}
}

// await sees to it that the link does not wait for ever for the peer to end e, which has been rung
// for.
func (l *link) await(e *endpoint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead || l.waits() {
		return // for another one
	}
	l.late = e
	l.patience.Set(patience, l.lose)
}

// waits reports whether the peer has not ended late. Called with mu held.
func (l *link) waits() bool { return l.late != nil && l.conns[l.late.id] == l.late }

// lose ends the link if the peer has not ended late, and nothing else goes over it.
func (l *link) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.dead:
	case !l.waits():
		l.late = nil
	case l.used == l.expected && len(l.asked) == 0:
		l.abort()
	default:
		l.patience.Set(patience, l.lose)
	}
}
