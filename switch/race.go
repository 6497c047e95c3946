package sanswitch

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"
)

// race dials over the SAN and over TCP, the SAN first. The SAN has the goroutine of the caller, so that a dial which it
// wins wakes nobody.
type race struct {
	san func(ctx context.Context) (Result, error) // returns as soon as ctx ends
	tcp func(ctx context.Context) (Result, error)

	// lead is how long TCP waits for the SAN. It waits as long again once that has been reached: a peer that was reached
	// over the SAN is likely to have a session in a moment, however busy both are.
	lead time.Duration

	// single tells that there is but one address, so that a refusal on one path speaks for the other.
	single bool

	// abort ends a connection that nobody wants.
	abort func(Result)

	mu sync.Mutex // a leaf, but for the locks of contexts
	// +checklocks:mu
	timer *time.Timer // starts TCP; nil once that has been started, or is not wanted any more
	// +checklocks:mu
	tcpDone chan struct{} // closed when TCP has an outcome; nil: it was not started
	// +checklocks:mu
	outcome *outcome // TCP's
	// +checklocks:mu
	over bool // nobody wants it
	// +checklocks:mu
	beaten bool // it called the SAN off
}

type outcome struct {
	Result
	err error
}

// run returns the first connection that is made; the other attempt is called off, and aborted should it still
// succeed. Beside a connection over TCP, sanErr tells why it is not over the SAN: nil means that TCP was faster. Without
// a connection, err is sanErr where that one is final, and otherwise the error of TCP.
func (r *race) run(ctx context.Context) (res Result, sanErr, err error) {
	legs, cancel := context.WithCancel(ctx)
	defer cancel()
	r.mu.Lock()
	r.timer = time.AfterFunc(r.lead, func() { r.startTCP(legs, cancel) })
	r.mu.Unlock()

	res, sanErr = r.san(legs)

	r.mu.Lock()
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil // from here on TCP is not started by it
	}
	done, beaten := r.tcpDone, r.beaten
	if sanErr == nil || r.single && !beaten && isFinal(sanErr) {
		// The peer has the session as well if this side has, so the session goes first.
		r.over = true
		late := r.outcome
		r.mu.Unlock()
		if late != nil && late.err == nil {
			r.abort(late.Result)
		}
		return res, sanErr, sanErr
	}
	r.mu.Unlock()
	if done == nil {
		// TCP's error for a context that has ended is net's own.
		res, err = r.tcp(ctx)
		return res, sanErr, err
	}
	<-done
	if beaten {
		sanErr = nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.outcome.Result, sanErr, r.outcome.err
}

// startTCP dials over TCP beside the SAN.
func (r *race) startTCP(ctx context.Context, cancel context.CancelFunc) {
	r.mu.Lock()
	if r.timer == nil || r.tcpDone != nil {
		r.mu.Unlock()
		return
	}
	r.timer, r.tcpDone = nil, make(chan struct{})
	r.mu.Unlock()

	res, err := r.tcp(ctx)

	r.mu.Lock()
	r.outcome = &outcome{res, err}
	over := r.over
	if err == nil || r.single && errors.Is(err, syscall.ECONNREFUSED) {
		r.beaten = !over
		cancel()
	}
	close(r.tcpDone)
	r.mu.Unlock()
	if over && err == nil {
		r.abort(res)
	}
}

// reached gives the SAN its lead again, unless TCP has started.
func (r *race) reached() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
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
