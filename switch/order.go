package sanswitch

import (
	"context"
	"net"
	"time"
)

// What net has for a dial to several addresses, and does not export.
const (
	fallbackDelay = 300 * time.Millisecond // of Dialer.FallbackDelay
	minShare      = 2 * time.Second        // of the time left, for one address
)

// dialer dials one of the addresses of a name.
type dialer[T any] func(ctx context.Context, to T) (Result, error)

// inOrder dials addresses as net does: first one after the other, and those of the other family,
// then, beside them once the delay is over, or when all have failed. The error is that of the
// first address.
func inOrder[T any](
	ctx context.Context, first, then []T, delay time.Duration, one dialer[T],
) (Result, error) {
	if len(first) == 0 {
		first, then = then, nil
	}
	if len(then) == 0 {
		return serially(ctx, first, one)
	}
	r := race{
		first:  func(ctx context.Context) (Result, error) { return serially(ctx, first, one) },
		second: func(ctx context.Context) (Result, error) { return serially(ctx, then, one) },
		lead:   delay,
		abort:  Result.drop,
	}
	res, firstErr, err := r.run(ctx)
	if err != nil {
		return Result{}, firstErr
	}
	return res, nil
}

// serially dials one address after the other, each with its share of the time.
func serially[T any](ctx context.Context, all []T, one dialer[T]) (Result, error) {
	var first error
	for i, to := range all {
		if ctx.Err() != nil {
			return one(ctx, to) // the error is that of a context that has ended
		}
		res, err := one.within(ctx, len(all)-i, to)
		if err == nil {
			return res, nil
		}
		if first == nil {
			first = err
		}
	}
	return Result{}, first
}

// within dials in the share of the time that is due to the first of n addresses.
func (one dialer[T]) within(ctx context.Context, n int, to T) (Result, error) {
	deadline, ok := ctx.Deadline()
	if !ok || n == 1 {
		return one(ctx, to)
	}
	left := time.Until(deadline)
	ctx, cancel := context.WithTimeout(ctx, min(max(left/time.Duration(n), minShare), left))
	defer cancel()
	return one(ctx, to)
}

// split divides destinations into those of the family that net tries first, and the others, as d
// wants it.
func split[T interface{ is4() bool }](
	d *net.Dialer, network string, all []T, first bool,
) (same, other []T) {
	if d.FallbackDelay < 0 || network != "tcp" && network != "san" {
		return all, nil
	}
	for _, t := range all {
		if t.is4() == first {
			same = append(same, t)
		} else {
			other = append(other, t)
		}
	}
	return same, other
}

// delayOf is how long the second family waits for the first.
func delayOf(d *net.Dialer) time.Duration {
	if d.FallbackDelay > 0 {
		return d.FallbackDelay
	}
	return fallbackDelay
}
