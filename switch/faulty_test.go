package sanswitch

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	tool "sansock/internal/faulty"
	"sansock/provider"
)

// wrapped gives faulty the fields of tool.Provider, so that Provider is the emulator.
type wrapped = tool.Provider

// faulty is an emulated SAN that fails where it is told to, by the hooks of the tool or by these, which
// are for all that it makes from then on.
type faulty struct {
	*wrapped
	listen         func(local netip.AddrPort) error // before Listen
	acceptRequest  func() error                     // before Accept of a listener
	accept         func(ctx context.Context, r provider.Request) (provider.Endpoint, error)
	dialed, served hooks // of endpoints

	listens []netip.AddrPort
}

// hooks of an endpoint come before its methods, and sent after every successful PostSend.
type hooks struct {
	allocate func() error
	postRecv func() error
	postSend func() error
	sent     func()
}

// newFaulty returns a provider on a SAN of its own, which serves the loopback addresses.
func newFaulty(t testing.TB, cfg emu.Config) *faulty {
	if cfg.Fabric == nil {
		cfg.Fabric = emu.NewFabric()
	}
	p, err := emu.New(cfg)
	require.NoError(t, err)
	f := &faulty{wrapped: tool.New(p)}
	f.On.Listen = func(local netip.AddrPort, backlog int) (provider.Listener, error) {
		f.listens = append(f.listens, local)
		if f.listen != nil {
			if err := f.listen(local); err != nil {
				return nil, err
			}
		}
		return p.Listen(local, backlog)
	}
	f.OnListener = f.hookListener
	f.OnRequest = f.hookRequest
	f.OnEndpoint = func(e *tool.Endpoint) provider.Endpoint {
		if e.Dialed {
			f.dialed.set(e)
		} else {
			f.served.set(e)
		}
		return e
	}
	t.Cleanup(func() {
		assert.NoError(t, p.Close())
		f.assertClean(t)
	})
	return f
}

func (f *faulty) hookListener(l *tool.Listener) {
	if f.acceptRequest == nil {
		return
	}
	l.On.Accept = func() (provider.Request, error) {
		if err := f.acceptRequest(); err != nil {
			return nil, err
		}
		return l.Listener.Accept()
	}
}

func (f *faulty) hookRequest(r *tool.Request) {
	if accept := f.accept; accept != nil {
		r.On.Accept = func(ctx context.Context) (provider.Endpoint, error) { return accept(ctx, r.Request) }
	}
}

// set sets the hooks of an endpoint.
func (h *hooks) set(e *tool.Endpoint) {
	if hook := h.allocate; hook != nil {
		e.On.Allocate = func(size int) (provider.Region, error) {
			if err := hook(); err != nil {
				return provider.Region{}, err
			}
			return e.Endpoint.Allocate(size)
		}
	}
	if hook := h.postRecv; hook != nil {
		e.On.PostRecv = func(r provider.Recv) error {
			if err := hook(); err != nil {
				return err
			}
			return e.Endpoint.PostRecv(r)
		}
	}
	if hook, sent := h.postSend, h.sent; hook != nil || sent != nil {
		e.On.PostSend = func(s provider.Send) error {
			if hook != nil {
				if err := hook(); err != nil {
					return err
				}
			}
			err := e.Endpoint.PostSend(s)
			if err == nil && sent != nil {
				sent()
			}
			return err
		}
	}
}

// assertClean waits until nothing is left open.
func (f *faulty) assertClean(t testing.TB) {
	t.Helper()
	left := func() tool.Uses {
		u := f.Uses()
		u.Dials = 0
		return u
	}
	assert.Eventually(t, func() bool { return left() == tool.Uses{} }, 10*time.Second, time.Millisecond)
	assert.Equal(t, tool.Uses{}, left(), "left open")
}

// fail returns a hook that fails with the status.
func fail(s provider.Status) func() error {
	return func() error { return &provider.Error{Provider: "emu", Op: "test", Status: s} }
}
