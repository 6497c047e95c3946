//go:build ofi && cgo && linux

package ofi

import (
	"time"

	"sansock/provider"
)

const (
	// flushTime is how long Close waits for the fabric to say that inline sends have left. A SAN answers within much less,
	// and Close may not wait for a peer that does not.
	flushTime = 20 * time.Millisecond

	// Where the peer has sent more than we have receives for, the descriptor is readable all the time, and run looks at
	// it now and then.
	shortNap = 50 * time.Microsecond
	longNap  = 10 * time.Millisecond

	// drainRounds bounds what is taken in when the connection is over.
	drainRounds = 128
)

// run takes completions until the connection is over, and then ends it.
func (e *endpoint) run() {
	defer close(e.down)
	var (
		n     int
		sleep bool
		err   error
	)
	look := func(uintptr) bool {
		n, sleep, err = e.look(n > 0)
		return n > 0 || !sleep || err != nil
	}
	idle := func(uintptr) bool { return false }
	nap := shortNap
	for !e.ending() {
		sleep, err = true, nil // and n is that of the last look
		e.sleeper.sleep(0, look)
		if n == 0 && !sleep && err == nil {
			// Who posts a receive from here on kicks. One that was posted before may have changed things.
			e.idling.Store(true)
			if !look(0) || n == 0 && err == nil {
				e.sleeper.sleep(nap, idle)
				nap = min(2*nap, longNap)
			}
			e.idling.Store(false)
		}
		if n > 0 {
			nap = shortNap
		}
		if err != nil {
			e.lose(provider.StatusLink)
		}
	}
	e.flush(look)
	e.finish()
}

// look takes what completions there are, and says whether run may sleep if there are none. With drained it has just taken
// some, and begins with the question.
func (e *endpoint) look(drained bool) (n int, sleep bool, err error) {
	e.polling.Lock()
	n, sleep, err = e.c.poll(drained)
	wake := e.settle(n)
	e.polling.Unlock()
	if wake != nil {
		wake()
	}
	return n, sleep, err
}

// ending reports that run has to end the connection.
func (e *endpoint) ending() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed || e.lost.Load()
}

// settle takes the n completions that have been read, and returns the wake function if that is to be called. Called with
// polling held, or by run when e is gone.
func (e *endpoint) settle(n int) (wake func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.take(n)
	return e.roused()
}

// take takes the n completions that have been read. Called with polling and mu held.
func (e *endpoint) take(n int) {
	for i := range n {
		e.settled(e.c.completion(i))
	}
}

// settled takes one completion of the fabric's. Called with mu held.
func (e *endpoint) settled(d done) {
	status := statusOf(d)
	switch i := int32(d.context - 1); {
	case d.context == contextFirstRecv:
		e.hearing--
		if status == provider.StatusOK {
			e.firstArrived(d.n)
		}
	case d.context == contextFirstSend:
		e.sending--
	case d.context == 0 || d.context > uint64(len(e.slots)) || e.slots[i].op == 0:
		return // not ours
	default:
		if s := &e.slots[i]; s.op == provider.OpRecv {
			e.hearing--
		} else {
			e.sent(s)
			d.n = 0
		}
		e.complete(i, status, d.n)
	}
	switch status {
	case provider.StatusOK:
	case provider.StatusAborted:
		e.loses(provider.StatusDisconnected)
	default:
		e.loses(status)
	}
}

// sent takes an operation off the transmit queue. Called with mu held.
func (e *endpoint) sent(s *slot) {
	e.sending--
	if s.inline {
		e.inlines--
	}
}

// flush gives inline sends, of which nobody waits for the completion, time to leave before Close ends them.
func (e *endpoint) flush(look func(uintptr) bool) {
	for limit := time.Now().Add(flushTime); ; {
		e.mu.Lock()
		pending := e.inlines > 0 && !e.lost.Load()
		e.mu.Unlock()
		left := time.Until(limit)
		if !pending || left <= 0 {
			return
		}
		e.sleeper.sleep(left, look)
	}
}

// finish ends the connection: what has arrived is reported, nothing more can be posted, the fabric's endpoint is closed,
// and what was still posted is reported as aborted.
func (e *endpoint) finish() {
	e.polling.Lock()
	e.gone = true
	e.polling.Unlock()
	for range drainRounds {
		if n, _, err := e.look(false); n == 0 || err != nil {
			break
		}
	}
	e.mu.Lock()
	e.over = true
	for e.busy > 0 {
		e.quiet.Wait()
	}
	e.mu.Unlock()
	e.fab.detach(e)
	for {
		n, err := e.c.read()
		if n == 0 || err != nil {
			break
		}
		if wake := e.settle(n); wake != nil {
			wake()
		}
	}
	e.mu.Lock()
	for i := range e.slots {
		if e.slots[i].op != 0 {
			e.complete(int32(i), provider.StatusAborted, 0)
		}
	}
	if !e.closed {
		e.report(provider.Completion{Op: provider.OpDisconnect, Status: e.cause})
	}
	wake := e.roused()
	e.mu.Unlock()
	if wake != nil {
		wake()
	}
	e.c.closeQueue()
	e.sleeper.close()
}
