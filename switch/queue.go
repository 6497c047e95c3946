package sanswitch

import (
	"slices"
	"sync"
	"time"

	"sansock/session"
)

// grace is how long a connection that is being set up holds back those that were requested after it. Dialed one
// after the other they are then accepted in that order, as with TCP, although the end of setting up is a
// matter of scheduling. A peer that stalls delays others no longer than that.
const grace = 50 * time.Millisecond

// queue has the connections of a listener that were requested over SANs and not accepted yet, in the order of the requests.
type queue struct {
	maxWaiting  int
	maxHalfOpen int

	// changed has a token after every change that may matter to next.
	changed chan struct{}

	mu sync.Mutex // a leaf
	// +checklocks:mu
	slots []*slot
	// +checklocks:mu
	halfOpen int // slots that are not ready
	// +checklocks:mu
	stirred []*slot // those that somebody should advance
	// +checklocks:mu
	timer *time.Timer
	// +checklocks:mu
	timing bool // timer runs
	// +checklocks:mu
	closed bool
}

// slot is a connection in the queue.
type slot struct {
	requested time.Time
	ready     bool
	result    Result // when it is ready

	// Of one that is set up by whoever has time, and not by a goroutine of its own.
	opening *session.Opening // nil: it is not; used by who has made it busy
	route   Route
	busy    bool // somebody advances it
	again   bool // it was stirred meanwhile
	expired bool // it has had its time
}

func newQueue(maxWaiting, maxHalfOpen int) *queue {
	return &queue{maxWaiting: maxWaiting, maxHalfOpen: maxHalfOpen, changed: make(chan struct{}, 1)}
}

// open adds s, a connection that is to be set up. If there are too many it is not added, and ok
// is false, with how to reject it: who finds the backlog full waits, as with TCP. Peers that are
// slow to set up are no reason for TCP not to serve this one.
func (q *queue) open(s *slot) (why rejection, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return rejectFinal, false
	case len(q.slots) >= q.maxWaiting:
		return rejectFull, false
	case q.halfOpen >= q.maxHalfOpen:
		return rejectBusy, false
	}
	s.requested = time.Now()
	q.slots = append(q.slots, s)
	q.halfOpen++
	return 0, true
}

// settle ends the setting up of a connection: it is r, or nothing if there was an error.
func (q *queue) settle(s *slot, r Result, err error) {
	q.mu.Lock()
	q.halfOpen--
	closed := q.closed
	if err == nil && !closed {
		s.ready, s.result = true, r
	} else {
		q.drop(s)
	}
	q.mu.Unlock()
	q.signal()
	if err == nil && closed {
		r.abort()
	}
}

// stir notes that s may be able to go on, and reports whether somebody has to be found who advances it.
func (q *queue) stir(s *slot) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.busy || s.ready || q.closed {
		s.again = true
		return false
	}
	s.busy = true
	q.stirred = append(q.stirred, s)
	return true
}

// work returns a slot that was stirred and is the caller's to advance, nil if there is none.
func (q *queue) work() *slot {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.stirred) == 0 {
		return nil
	}
	s := q.stirred[0]
	q.stirred = slices.Delete(q.stirred, 0, 1)
	return s
}

// What comes of a slot that cannot go on.
type rest uint8

const (
	restWait  rest = iota // the caller has let go of it
	restAgain             // it may be able to go on
	restDrop              // its time is over, or the queue closed
)

// leave lets go of a slot that was advanced as far as it goes.
func (q *queue) leave(s *slot) rest {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed || s.expired:
		return restDrop
	case s.again:
		s.again = false
		return restAgain
	}
	s.busy = false
	return restWait
}

// watch has expired called when a slot has had its time.
func (q *queue) watch(expired func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.timing || q.closed {
		return
	}
	q.timing = true
	if d := q.due(); q.timer == nil {
		q.timer = time.AfterFunc(d, expired)
	} else {
		q.timer.Reset(d)
	}
}

// due is how long the first of the slots has left that are set up here, 0 if there are none.
//
// +checklocks:q.mu
func (q *queue) due() (d time.Duration) {
	for _, s := range q.slots {
		if s.opening != nil && !s.ready && !s.expired {
			return max(s.opening.Timeout()-time.Since(s.requested), 1) // all have the same
		}
	}
	return 0
}

// expire marks the slots that have had their time, and reports whether somebody has to be found who drops them.
func (q *queue) expire() (any bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.slots {
		if s.opening == nil || s.ready || s.expired || time.Since(s.requested) < s.opening.Timeout() {
			continue
		}
		s.expired = true
		if !s.busy {
			s.busy = true
			q.stirred = append(q.stirred, s)
			any = true
		}
	}
	if d := q.due(); d > 0 && !q.closed {
		q.timer.Reset(d)
	} else {
		q.timing = false
	}
	return any
}

// next takes the connection to be accepted next out of the queue. If there is none yet it returns nil, and when to look
// again if nothing changes, 0 for never.
func (q *queue) next() (*slot, time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.slots {
		if s.ready {
			q.drop(s)
			return s, 0
		}
		if left := grace - time.Since(s.requested); left > 0 && len(q.slots) > q.halfOpen {
			return nil, left
		}
	}
	return nil, 0
}

// left reports whether there is a slot to advance, and one that is ready.
func (q *queue) left() (work, ready bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.stirred) > 0, len(q.slots) > q.halfOpen
}

// empty reports whether there is no connection, not even one that is being set up.
func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.slots) == 0
}

// drop takes s out of the queue.
//
// +checklocks:q.mu
func (q *queue) drop(s *slot) {
	if i := slices.Index(q.slots, s); i >= 0 {
		q.slots = slices.Delete(q.slots, i, i+1)
	}
}

// close ends the connections in the queue, and those that are still set up once that is over.
func (q *queue) close() {
	q.mu.Lock()
	var ready []Result
	var openings []*session.Opening
	mine := q.stirred // busy, but with nobody who advances them
	for _, s := range q.slots {
		switch {
		case s.ready:
			ready = append(ready, s.result)
		case s.opening != nil && !s.busy:
			s.busy = true
			mine = append(mine, s)
		}
	}
	for _, s := range mine {
		openings = append(openings, s.opening)
		q.halfOpen--
	}
	q.closed, q.slots, q.stirred = true, nil, nil
	if q.timer != nil {
		q.timer.Stop()
	}
	q.mu.Unlock()
	for _, r := range ready {
		r.abort()
	}
	for _, o := range openings {
		o.Drop()
	}
}

func (q *queue) signal() {
	select {
	case q.changed <- struct{}{}:
	default:
	}
}
