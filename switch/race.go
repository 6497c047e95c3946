package sanswitch

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// race dials over the SAN and over TCP, the SAN first.
type race struct {
	san, tcp func(ctx context.Context) (Result, error)

	// lead is how long TCP waits for the SAN. It waits as long again once reached is closed: a peer that was reached
	// over the SAN is likely to have a session in a moment, however busy both are.
	lead    time.Duration
	reached <-chan struct{}

	// single tells that there is but one address, so that a refusal on one path speaks for the other.
	single bool

	// abort ends a connection that nobody wants.
	abort func(Result)
}

// run returns the first connection that is made; the other attempt is called off, and aborted should it still
// succeed. Beside a connection over TCP, sanErr tells why it is not over the SAN: nil means that TCP was faster. Without
// a connection, err is sanErr where that one is final, and otherwise the error of TCP.
func (r *race) run(ctx context.Context) (res Result, sanErr, err error) {
	legs, cancel := context.WithCancel(ctx)
	defer cancel()
	returned := make(chan struct{})
	defer close(returned)

	type outcome struct {
		Result
		err error
	}
	start := func(ctx context.Context, leg func(context.Context) (Result, error)) chan outcome {
		c := make(chan outcome)
		go func() {
			res, err := leg(ctx)
			select {
			case c <- outcome{res, err}:
			case <-returned:
				if err == nil {
					r.abort(res)
				}
			}
		}()
		return c
	}

	san := start(legs, r.san)
	var tcp chan outcome // nil until TCP has started
	var tcpErr error     // not nil once it has failed
	startTCP := func(ctx context.Context) {
		if tcp == nil && tcpErr == nil {
			tcp = start(ctx, r.tcp)
		}
	}
	timer := time.NewTimer(r.lead)
	defer timer.Stop()
	reached, done := r.reached, ctx.Done()

	for {
		select {
		case <-reached:
			reached = nil
			timer.Reset(r.lead)

		case <-timer.C:
			startTCP(legs)

		case <-done:
			// TCP's error for a context that has ended is net's own.
			done = nil
			if tcpErr != nil {
				return Result{}, sanErr, tcpErr
			}
			startTCP(ctx) // legs may hear of it later, and a connection be made meanwhile

		case o := <-san:
			san, sanErr = nil, o.err
			if o.err == nil || r.single && isFinal(o.err) {
				return o.Result, o.err, o.err
			}
			if tcpErr != nil {
				return Result{}, sanErr, tcpErr
			}
			startTCP(legs)

		case o := <-tcp:
			if o.err == nil {
				// The peer has the session as well if this side has, so the session goes first.
				select {
				case s := <-san:
					if sanErr = s.err; s.err == nil {
						r.abort(o.Result)
						return s.Result, nil, nil
					}
				default:
				}
				return o.Result, sanErr, nil
			}
			tcp, tcpErr = nil, o.err
			if san == nil || ctx.Err() != nil || r.single && errors.Is(o.err, syscall.ECONNREFUSED) {
				return Result{}, sanErr, tcpErr
			}
		}
	}
}

// isFinal reports whether the error of the SAN ends the dial.
func isFinal(err error) bool {
	var f *failure
	return errors.As(err, &f) && f.final != nil
}
