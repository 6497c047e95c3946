package session_test

import (
	"context"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/provider"
	"sansock/session"
)

// rig is two emulated adapters on a fabric of their own, one of which listens.
type rig struct {
	t    testing.TB
	p    [2]*emu.Provider
	l    provider.Listener
	cfg  session.Config
	eps  [2]provider.Endpoint // of the last connection
	fail bool                 // connecting may fail
	bare bool                 // sessions do not know their provider
}

func newRig(t testing.TB, a, b emu.Config, cfg session.Config) *rig {
	t.Helper()
	r := &rig{t: t, cfg: cfg}
	a.Fabric = emu.NewFabric()
	b.Fabric = a.Fabric
	for i, c := range []emu.Config{a, b} {
		p, err := emu.New(c)
		require.NoError(t, err)
		r.p[i] = p
		t.Cleanup(func() { p.Close() })
	}
	l, err := r.p[1].Listen(netip.MustParseAddrPort("127.0.0.1:0"), 16)
	require.NoError(t, err)
	r.l = l
	return r
}

// config is the configuration of end i.
func (r *rig) config(i int) session.Config {
	cfg := r.cfg
	if !r.bare {
		cfg.Provider = r.p[i]
	}
	return cfg
}

// connect makes a session and returns its ends, the dialer's first; nil for an end that failed.
func (r *rig) connect() (ends [2]*session.Conn) {
	r.t.Helper()
	got := make(chan *session.Conn, 1)
	go func() {
		defer close(got)
		req, err := r.l.Accept()
		if err != nil {
			return
		}
		ep, err := req.Accept(context.Background())
		if err != nil {
			return
		}
		r.eps[1] = ep
		if c, err := session.Negotiate(context.Background(), ep, session.Listener, r.config(1)); err == nil {
			got <- c
		}
	}()
	ep, err := r.p[0].Dial(context.Background(), netip.AddrPort{}, r.l.Addr())
	if err == nil {
		r.eps[0] = ep
		ends[0], err = session.Negotiate(context.Background(), ep, session.Dialer, r.config(0))
	}
	ends[1] = <-got
	if !r.fail {
		require.NoError(r.t, err)
		require.NotNil(r.t, ends[1])
	}
	for _, c := range ends {
		if c != nil {
			r.t.Cleanup(func() { c.Close() })
		}
	}
	return ends
}

// pair returns the two ends of a session over the emulator.
func pair(t testing.TB, a, b emu.Config, cfg session.Config) (x, y *session.Conn) {
	t.Helper()
	c := newRig(t, a, b, cfg).connect()
	return c[0], c[1]
}
