package sanswitch

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"sansock/session"
)

// errMissing is why a connection that was handed over cannot go on here.
var errMissing = errors.New("the SAN provider of the connection is not in use")

// Resume goes on with a session that session.Conn.Handover has left, over the provider of that name. An error that is
// ECONNRESET means that the connection is lost, or will be in a moment; after any other the state can be tried again.
func (s *Switch) Resume(ctx context.Context, name string, state []byte) (Result, error) {
	st, err := session.ParseState(state)
	if err != nil {
		return Result{}, err
	}
	for _, p := range s.table.providers {
		if p.Name() != name || s.closed.Load() {
			continue
		}
		dialCtx, cancel := context.WithTimeout(ctx, connectTimeout)
		ep, err := p.Dial(dialCtx, netip.AddrPort{}, st.Addr())
		cancel()
		if ctx.Err() != nil && err != nil {
			return Result{}, err
		}
		if err != nil {
			return Result{}, lost(err)
		}
		c, err := session.Resume(ctx, ep, st, over(s.session, p))
		if err != nil {
			return Result{}, lost(err)
		}
		return Result{Session: c, Route: Route{Path: PathSAN, Provider: name, Reason: ReasonSAN}}, nil
	}
	return Result{}, errMissing
}

// lost is the error of a connection that did not find its peer again.
func lost(err error) error {
	if errors.Is(err, syscall.ECONNRESET) {
		return err
	}
	return fmt.Errorf("%w (%w)", syscall.ECONNRESET, err)
}
