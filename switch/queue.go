package sanswitch

import (
	"slices"
	"sync"
	"time"
)

// grace is how long a connection that is being set up holds back those that were requested after it. Dialed one
// after the other they are then accepted in that order, as with TCP, although the end of setting up is a
// matter of scheduling. A peer that stalls delays others no longer than that.
const grace = 50 * time.Millisecond

// queue has the connections of a listener that were requested over SANs and not accepted yet, in the order of the requests.
type queue struct {
	maxWaiting, maxHalfOpen int

	// changed has a token after every change that may matter to next.
	changed chan struct{}

	mu       sync.Mutex
	slots    []*slot
	halfOpen int // slots that are not ready
	closed   bool
}

// slot is a connection in the queue.
type slot struct {
	requested time.Time
	ready     bool
	result    Result // when it is ready
}

func newQueue(maxWaiting, maxHalfOpen int) *queue {
	return &queue{maxWaiting: maxWaiting, maxHalfOpen: maxHalfOpen, changed: make(chan struct{}, 1)}
}

// open adds a connection that is to be set up. If there are too many it returns nil, and how to reject it: a full
// backlog is final, by WSD's rule. Peers that are slow to set up are no reason for TCP not to serve this one.
func (q *queue) open() (*slot, rejection) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed, len(q.slots) >= q.maxWaiting:
		return nil, rejectFinal
	case q.halfOpen >= q.maxHalfOpen:
		return nil, rejectBusy
	}
	s := &slot{requested: time.Now()}
	q.slots = append(q.slots, s)
	q.halfOpen++
	return s, 0
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

// next returns the connection to be accepted next, which stays in the queue. If there is none yet it returns nil, and
// when to look again if nothing changes, 0 for never.
func (q *queue) next() (*slot, time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.slots {
		if s.ready {
			return s, 0
		}
		if left := grace - time.Since(s.requested); left > 0 && len(q.slots) > q.halfOpen {
			return nil, left
		}
	}
	return nil, 0
}

// empty reports whether there is no connection, not even one that is being set up.
func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.slots) == 0
}

// remove takes a connection out that was accepted.
func (q *queue) remove(s *slot) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drop(s)
}

// drop needs to be called with locked mutex.
func (q *queue) drop(s *slot) {
	if i := slices.Index(q.slots, s); i >= 0 {
		q.slots = slices.Delete(q.slots, i, i+1)
	}
}

// close ends the connections in the queue, and those that are still set up once that is over.
func (q *queue) close() {
	q.mu.Lock()
	var ready []Result
	for _, s := range q.slots {
		if s.ready {
			ready = append(ready, s.result)
		}
	}
	q.closed, q.slots = true, nil
	q.mu.Unlock()
	for _, r := range ready {
		r.abort()
	}
}

func (q *queue) signal() {
	select {
	case q.changed <- struct{}{}:
	default:
	}
}
