package sanswitch

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"
)

// race dials in two ways, over the SAN and over TCP, or to the addresses of two families, with a
// head start for the first. That has the goroutine of the caller, so that a dial which it wins
// wakes nobody.
type race struct {
	first  func(ctx context.Context) (Result, error) // returns as soon as ctx ends
	second func(ctx context.Context) (Result, error)

	// lead is how long the second waits for the first. It waits as long again, once, when a peer
	// has been reached: it is likely to have a session in a moment, however busy both are.
	lead time.Duration

	// single tells that there is but one address, so that a refusal on one way speaks for the
	// other.
	single bool

	// abort ends a connection that nobody wants.
	abort func(Result)

	mu sync.Mutex // a leaf, but for the locks of contexts
	// +checklocks:mu
	timer *time.Timer // starts the second; nil once that has started, or is not wanted any more
	// +checklocks:mu
	done chan struct{} // closed when the second has an outcome; nil: it was not started
	// +checklocks:mu
	outcome *outcome // the second's
	// +checklocks:mu
	over bool // nobody wants it
	// +checklocks:mu
	beaten bool // it called the first off
	// +checklocks:mu
	again bool // the first had its lead twice
}

type outcome struct {
	Result
	err error
}

// run returns the first connection that is made; the other attempt is called off, and aborted
// should it still succeed. Beside a connection of the second, firstErr tells why it is not of the
// first: nil means that the second was faster. Without a connection, err is firstErr where that
// one is final, and otherwise the error of the second.
func (r *race) run(ctx context.Context) (res Result, firstErr, err error) {
	legs, cancel := context.WithCancel(ctx)
	defer cancel()
	r.mu.Lock()
	r.timer = time.AfterFunc(r.lead, func() { r.start(legs, cancel) })
	r.mu.Unlock()

	res, firstErr = r.first(legs)

	r.mu.Lock()
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil // from here on the second is not started by it
	}
	done, beaten := r.done, r.beaten
	if firstErr == nil || r.single && !beaten && isFinal(firstErr) {
		// The peer has the session as well if this side has, so the session goes first.
		r.over = true
		late := r.outcome
		r.mu.Unlock()
		if late != nil && late.err == nil {
			r.abort(late.Result)
		}
		return res, firstErr, firstErr
	}
	r.mu.Unlock()
	if done == nil {
		// TCP's error for a context that has ended is net's own.
		res, err = r.second(ctx)
		return res, firstErr, err
	}
	<-done
	if beaten {
		firstErr = nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.outcome.Result, firstErr, r.outcome.err
}

// start makes the second attempt beside the first.
func (r *race) start(ctx context.Context, cancel context.CancelFunc) {
	r.mu.Lock()
	if r.timer == nil || r.done != nil {
		r.mu.Unlock()
		return
	}
	r.timer, r.done = nil, make(chan struct{})
	r.mu.Unlock()

	res, err := r.second(ctx)

	r.mu.Lock()
	r.outcome = &outcome{res, err}
	over := r.over
	if err == nil || r.single && errors.Is(err, syscall.ECONNREFUSED) {
		r.beaten = !over
		cancel()
	}
	close(r.done)
	r.mu.Unlock()
	if over && err == nil {
		r.abort(res)
	}
}

// reached gives the first its lead again, unless the second has started.
func (r *race) reached() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil && !r.again {
		r.again = true
		r.timer.Reset(r.lead)
	}
}

// promptly returns leg for where it may be deaf to the end of its context: what it brings after that is aborted.
func promptly(leg func(context.Context) (Result, error), abort func(Result)) func(context.Context) (Result, error) {
	return func(ctx context.Context) (Result, error) {
		c := make(chan outcome)
		go func() {
			res, err := leg(ctx)
			select {
			case c <- outcome{res, err}:
			case <-ctx.Done():
				if err == nil {
					abort(res)
				}
			}
		}()
		select {
		case o := <-c:
			return o.Result, o.err
		case <-ctx.Done():
			return Result{}, ctx.Err()
		}
	}
}

// isFinal reports whether the error of the SAN ends the dial.
func isFinal(err error) bool {
	var f *failure
	return errors.As(err, &f) && f.final != nil
}
