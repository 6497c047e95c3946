package sanswitch

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/provider"
)

// faulty is a provider that fails where it is told to, and counts what is left open.
type faulty struct {
	provider.Provider

	// The hooks replace the method of the same name, if they are set. An Endpoint's are for the side that they name.
	prefixes       func() ([]netip.Prefix, error)
	dial           func(ctx context.Context, local, remote netip.AddrPort) (provider.Endpoint, error)
	listen         func(local netip.AddrPort) error
	acceptRequest  func() error
	accept         func(ctx context.Context, r provider.Request) (provider.Endpoint, error)
	dialed, served hooks

	mu        sync.Mutex
	dials     int // calls of Dial
	listens   []netip.AddrPort
	endpoints int // that are open
	regions   int // that are registered
}

// hooks of an endpoint.
type hooks struct {
	allocate func() error
	postRecv func() error
	postSend func() error
	sent     func() // after every successful PostSend
}

// newFaulty returns a provider on a SAN of its own, which serves the loopback addresses.
func newFaulty(t testing.TB, cfg emu.Config) *faulty {
	if cfg.Fabric == nil {
		cfg.Fabric = emu.NewFabric()
	}
	p, err := emu.New(cfg)
	require.NoError(t, err)
	f := &faulty{Provider: p}
	t.Cleanup(func() {
		assert.NoError(t, p.Close())
		f.assertClean(t)
	})
	return f
}

// assertClean waits until nothing is left open.
func (f *faulty) assertClean(t testing.TB) {
	t.Helper()
	assert.Eventually(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.endpoints == 0 && f.regions == 0
	}, 10*time.Second, time.Millisecond)
	f.mu.Lock()
	defer f.mu.Unlock()
	assert.Zero(t, f.endpoints, "open endpoints")
	assert.Zero(t, f.regions, "registered regions")
}

func (f *faulty) count(n *int, by int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*n += by
}

func (f *faulty) dialCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dials
}

func (f *faulty) Prefixes() ([]netip.Prefix, error) {
	if f.prefixes != nil {
		return f.prefixes()
	}
	return f.Provider.Prefixes()
}

func (f *faulty) Dial(ctx context.Context, local, remote netip.AddrPort) (provider.Endpoint, error) {
	f.count(&f.dials, 1)
	dial := f.dial
	if dial == nil {
		dial = f.Provider.Dial
	}
	ep, err := dial(ctx, local, remote)
	if err != nil {
		return nil, err
	}
	return f.wrap(ep, &f.dialed), nil
}

// DialEarly implements provider.EarlyDialer.
func (f *faulty) DialEarly(ctx context.Context, local, remote netip.AddrPort, begin func(provider.Endpoint) error) (provider.Endpoint, error) {
	if f.dial != nil {
		ep, err := f.Dial(ctx, local, remote)
		if err != nil {
			return nil, err
		}
		if err := begin(ep); err != nil {
			ep.Close()
			return nil, err
		}
		return ep, nil
	}
	f.count(&f.dials, 1)
	var mine provider.Endpoint
	_, err := f.Provider.(provider.EarlyDialer).DialEarly(ctx, local, remote, func(ep provider.Endpoint) error {
		mine = f.wrap(ep, &f.dialed)
		return begin(mine)
	})
	if err != nil && mine != nil {
		mine.Close()
	}
	return mine, err
}

func (f *faulty) Listen(local netip.AddrPort, backlog int) (provider.Listener, error) {
	f.mu.Lock()
	f.listens = append(f.listens, local)
	f.mu.Unlock()
	if f.listen != nil {
		if err := f.listen(local); err != nil {
			return nil, err
		}
	}
	l, err := f.Provider.Listen(local, backlog)
	if err != nil {
		return nil, err
	}
	return &faultyListener{l, f}, nil
}

type faultyListener struct {
	provider.Listener
	f *faulty
}

func (l *faultyListener) Accept() (provider.Request, error) {
	if l.f.acceptRequest != nil {
		if err := l.f.acceptRequest(); err != nil {
			return nil, err
		}
	}
	r, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.f.request(r), nil
}

// request returns one that is an EarlyRequest, unless there is a hook, which may wait.
func (f *faulty) request(r provider.Request) provider.Request {
	if f.accept != nil {
		return struct{ provider.Request }{&faultyRequest{r, f}}
	}
	return &faultyRequest{r, f}
}

// OnRequest implements provider.RequestNotifier.
func (l *faultyListener) OnRequest(take func(provider.Request)) {
	if l.f.acceptRequest == nil {
		l.Listener.(provider.RequestNotifier).OnRequest(func(r provider.Request) {
			take(l.f.request(r))
		})
	}
}

type faultyRequest struct {
	provider.Request
	f *faulty
}

func (r *faultyRequest) Accept(ctx context.Context) (provider.Endpoint, error) {
	ep, err := provider.Endpoint(nil), error(nil)
	if r.f.accept != nil {
		ep, err = r.f.accept(ctx, r.Request)
	} else {
		ep, err = r.Request.Accept(ctx)
	}
	if err != nil {
		return nil, err
	}
	return r.f.wrap(ep, &r.f.served), nil
}

// AcceptEarly implements provider.EarlyRequest.
func (r *faultyRequest) AcceptEarly(ctx context.Context, begin func(provider.Endpoint) error) (provider.Endpoint, error) {
	var mine provider.Endpoint
	_, err := r.Request.(provider.EarlyRequest).AcceptEarly(ctx, func(ep provider.Endpoint) error {
		mine = r.f.wrap(ep, &r.f.served)
		return begin(mine)
	})
	if err != nil && mine != nil {
		mine.Close()
	}
	return mine, err
}

func (f *faulty) wrap(ep provider.Endpoint, h *hooks) provider.Endpoint {
	f.count(&f.endpoints, 1)
	return &faultyEndpoint{Endpoint: ep, f: f, h: h, regions: make(map[provider.Handle]bool)}
}

type faultyEndpoint struct {
	provider.Endpoint
	f *faulty
	h *hooks

	close   sync.Once
	mu      sync.Mutex
	regions map[provider.Handle]bool
}

func (e *faultyEndpoint) track(r provider.Region, err error) (provider.Region, error) {
	if err == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.regions[r.Handle] = true
		e.f.count(&e.f.regions, 1)
	}
	return r, err
}

func (e *faultyEndpoint) Allocate(size int) (provider.Region, error) {
	if e.h.allocate != nil {
		if err := e.h.allocate(); err != nil {
			return provider.Region{}, err
		}
	}
	return e.track(e.Endpoint.Allocate(size))
}

func (e *faultyEndpoint) Register(b []byte) (provider.Region, error) {
	return e.track(e.Endpoint.Register(b))
}

func (e *faultyEndpoint) Expose(b []byte, rights provider.Rights) (provider.Region, error) {
	return e.track(e.Endpoint.Expose(b, rights))
}

func (e *faultyEndpoint) Deregister(h provider.Handle) error {
	err := e.Endpoint.Deregister(h)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil && e.regions[h] {
		delete(e.regions, h)
		e.f.count(&e.f.regions, -1)
	}
	return err
}

func (e *faultyEndpoint) PostRecv(r provider.Recv) error {
	if e.h.postRecv != nil {
		if err := e.h.postRecv(); err != nil {
			return err
		}
	}
	return e.Endpoint.PostRecv(r)
}

func (e *faultyEndpoint) PostSend(s provider.Send) error {
	if e.h.postSend != nil {
		if err := e.h.postSend(); err != nil {
			return err
		}
	}
	err := e.Endpoint.PostSend(s)
	if err == nil && e.h.sent != nil {
		e.h.sent()
	}
	return err
}

func (e *faultyEndpoint) Close() error {
	e.close.Do(func() { e.f.count(&e.f.endpoints, -1) })
	return e.Endpoint.Close()
}

// fail returns a hook that fails with the status.
func fail(s provider.Status) func() error {
	return func() error { return &provider.Error{Provider: "emu", Op: "test", Status: s} }
}
