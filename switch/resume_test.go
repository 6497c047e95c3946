package sanswitch

import (
	"context"
	"net/netip"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/provider"
	"sansock/session"
)

// A new end that is turned away comes again, and is told apart from one whose connection is lost.
func TestResume(t *testing.T) {
	f := newFaulty(t, emu.Config{SameProcess: true})
	s := newSwitch(t, Config{}, f)
	l := listen(t, s, "tcp", "127.0.0.1:0")
	client := dial(t, s, "tcp", l.Addr().String())
	server := accept(t, l)
	ctx := t.Context()
	handOver := func() []byte {
		t.Helper()
		state, err := client.Session.Handover(ctx)
		require.NoError(t, err)
		return state
	}
	resumed := func(r Result, err error) {
		t.Helper()
		require.NoError(t, err)
		client = r
		t.Cleanup(func() { stream(r).Close() })
		echo(t, client, server)
	}
	times := func(n int, s provider.Status) func() error {
		return func() error {
			if n--; n >= 0 {
				return s
			}
			return nil
		}
	}

	state := handOver()
	turn := times(3, provider.StatusRefused)
	f.On.Dial = func(ctx context.Context, local, remote netip.AddrPort) (provider.Endpoint, error) {
		if err := turn(); err != nil {
			return nil, err
		}
		return f.Provider.Dial(ctx, local, remote)
	}
	resumed(s.Resume(ctx, f.Name(), state))

	state = handOver() // connected, and then disconnected
	turn = times(2, provider.StatusDisconnected)
	f.On.Dial = nil
	f.accept = func(ctx context.Context, r provider.Request) (provider.Endpoint, error) {
		ep, err := r.Accept(ctx)
		if err == nil {
			if err = turn(); err != nil {
				ep.Close()
				return nil, err
			}
		}
		return ep, err
	}
	resumed(s.Resume(ctx, f.Name(), state))
	f.accept = nil

	state = handOver() // no memory here
	f.dialed.allocate = times(1, provider.StatusNoMemory)
	_, err := s.Resume(ctx, f.Name(), state)
	require.ErrorIs(t, err, session.ErrMemory)
	require.NotErrorIs(t, err, syscall.ECONNRESET, "it can be tried again")

	// Turned away for good, but for the caller's patience.
	f.On.Dial = func(ctx context.Context, local, remote netip.AddrPort) (provider.Endpoint, error) {
		return nil, provider.StatusRefused
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	_, err = s.Resume(over, f.Name(), state)
	require.Error(t, err)
	require.NotErrorIs(t, err, syscall.ECONNRESET)
	_, err = s.Resume(ctx, f.Name(), state)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	f.On.Dial = nil
	resumed(s.Resume(ctx, f.Name(), state))
	_, err = s.Resume(ctx, f.Name(), state)
	assert.ErrorIs(t, err, syscall.ECONNRESET, "once")
}
