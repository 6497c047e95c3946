package sanswitch

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"sansock/provider"
	"sansock/session"
)

// errMissing is why a connection that was handed over cannot go on here.
var errMissing = errors.New("the SAN provider of the connection is not in use")

// The peer may be busy with strangers who have found its address, or its provider with something else. So who is turned away tries
// again, after pauses of 1, 2, 4 ... ms: for half a second together.
const (
	resumeTries = 10
	resumePause = time.Millisecond
)

// Resume goes on with a session that session.Conn.Handover has left, over the provider of that name. An error that is
// ECONNRESET means that the connection is lost, or will be in a moment; after any other the state can be tried again.
func (s *Switch) Resume(ctx context.Context, name string, state []byte) (Result, error) {
	st, err := session.ParseState(state)
	if err != nil {
		return Result{}, err
	}
	if s.disabled() {
		return Result{}, s.errDisabled()
	}
	for _, p := range s.table.providers {
		if p.Name() != name {
			continue
		}
		for try := 1; ; try++ {
			c, err := s.resume(ctx, p, st)
			switch {
			case err == nil:
				return Result{Session: c, Route: Route{Path: PathSAN, Provider: name, Reason: ReasonSAN}}, nil
			case ctx.Err() != nil:
				return Result{}, err
			case try == resumeTries || !turnedAway(err):
				return Result{}, lost(err)
			}
			select {
			case <-ctx.Done():
				return Result{}, context.Cause(ctx)
			case <-time.After(resumePause << (try - 1)):
			}
		}
	}
	return Result{}, errMissing
}

func (s *Switch) resume(ctx context.Context, p provider.Provider, st *session.State) (*session.Conn, error) {
	dialCtx, cancel := context.WithTimeout(ctx, connectTimeout)
	ep, err := p.Dial(dialCtx, netip.AddrPort{}, st.Addr())
	cancel()
	if err != nil {
		return nil, err
	}
	return session.Resume(ctx, ep, st, over(s.session, p))
}

// turnedAway reports that the peer has not let the new end in, and may do so next time. Where it has let one in, that
// is harmless: the token is not good any more.
func turnedAway(err error) bool {
	switch provider.StatusOf(err) {
	case provider.StatusRefused, provider.StatusDisconnected, provider.StatusAborted:
		return true
	}
	return peerBusy(err)
}

// peerBusy reports that the peer waits, and has no room for the new end.
func peerBusy(err error) bool {
	var refused *session.RefusedError
	return errors.As(err, &refused) && (refused.Code == session.RefusedMemory || refused.Code == session.RefusedBusy)
}

// lost is the error of a connection that did not find its peer again. Where one of the two ends had no memory for it, it still may.
func lost(err error) error {
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, session.ErrMemory) || peerBusy(err) {
		return err
	}
	return fmt.Errorf("%w (%w)", syscall.ECONNRESET, err)
}
