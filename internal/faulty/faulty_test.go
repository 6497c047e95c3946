package faulty_test

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"sansock/emu"
	"sansock/internal/faulty"
	"sansock/provider"
	"sansock/provider/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var anywhere = netip.MustParseAddrPort("127.0.0.1:0")

// newProvider wraps an emulated SAN of its own, which has to be unused in the end.
func newProvider(t *testing.T) *faulty.Provider {
	inner, err := emu.New(emu.Config{Fabric: emu.NewFabric()})
	require.NoError(t, err)
	p := faulty.New(inner)
	t.Cleanup(func() {
		assert.NoError(t, p.Close())
		u := p.Uses()
		assert.Zero(t, u.Endpoints)
		assert.Zero(t, u.Regions)
	})
	return p
}

// connect makes a connection. The listener's side accepts early where it can.
func connect(t *testing.T, p *faulty.Provider) (dialed, accepted provider.Endpoint) {
	l, err := p.Listen(anywhere, 1)
	require.NoError(t, err)
	got := make(chan provider.Endpoint, 1)
	go func() {
		r, err := l.Accept()
		if !assert.NoError(t, err) {
			return
		}
		e, err := r.Accept(t.Context())
		assert.NoError(t, err)
		got <- e
	}()
	dialed, err = p.Dial(t.Context(), netip.AddrPort{}, l.Addr())
	require.NoError(t, err)
	accepted = <-got
	require.NoError(t, l.Close())
	t.Cleanup(func() {
		dialed.Close()
		accepted.Close()
	})
	return dialed, accepted
}

// TestTransparent: without hooks all promises of a provider are kept.
func TestTransparent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		assert.Empty(t, providertest.Check(providertest.Config{Rounds: 20,
			Open: func() (provider.Provider, provider.Provider, error) {
				inner, err := emu.New(emu.Config{Fabric: emu.NewFabric()})
				p := faulty.New(inner)
				return p, p, err
			}}))
	})
}

// TestUses: what is made and not ended is counted.
func TestUses(t *testing.T) {
	p := newProvider(t)
	a, b := connect(t, p)
	r, err := a.Register(make([]byte, 10))
	require.NoError(t, err)
	x, err := b.Expose(make([]byte, 10), provider.RightRead)
	require.NoError(t, err)
	m, err := b.Allocate(10)
	require.NoError(t, err)
	assert.Equal(t, faulty.Uses{Dials: 1, Endpoints: 2, Regions: 3}, p.Uses())
	require.NoError(t, a.Deregister(r.Handle))
	assert.ErrorIs(t, a.Deregister(r.Handle), provider.StatusAccess)
	require.NoError(t, a.Close())
	require.NoError(t, a.Close())
	require.NoError(t, b.Deregister(x.Handle))
	assert.Equal(t, faulty.Uses{Dials: 1, Endpoints: 1, Regions: 1}, p.Uses())
	require.NoError(t, b.Deregister(m.Handle))
	p.On.Dial = func(context.Context, netip.AddrPort, netip.AddrPort) (provider.Endpoint, error) {
		return nil, provider.StatusLink
	}
	_, err = p.Dial(t.Context(), netip.AddrPort{}, anywhere)
	assert.Equal(t, provider.StatusLink, err)
	assert.Equal(t, faulty.Uses{Dials: 2, Endpoints: 1}, p.Uses())
}

// retrying is a provider that gives begin two endpoints, of which the first is lost.
type retrying struct {
	provider.Provider
	dial func() provider.Endpoint
}

func (r retrying) DialEarly(_ context.Context, _, _ netip.AddrPort, begin func(provider.Endpoint) error) (provider.Endpoint, error) {
	for range 2 {
		if err := begin(r.dial()); err != nil {
			return nil, err
		}
	}
	return nil, nil // not looked at: begin has seen it
}

// TestEarly: the endpoint that begin was given last is what the dialer gets, and the only one that is left.
func TestEarly(t *testing.T) {
	p := newProvider(t)
	l, err := p.Listen(anywhere, 2)
	require.NoError(t, err)
	defer l.Close()
	l.(provider.RequestNotifier).OnRequest(func(r provider.Request) {
		e, err := r.(provider.EarlyRequest).AcceptEarly(t.Context(), func(e provider.Endpoint) error {
			assert.False(t, e.(*faulty.Endpoint).Dialed)
			return nil
		})
		assert.NoError(t, err)
		t.Cleanup(func() { e.Close() })
	})
	inner := p.Provider
	p.Provider = retrying{inner, func() provider.Endpoint {
		e, err := inner.Dial(t.Context(), netip.AddrPort{}, l.Addr())
		require.NoError(t, err)
		return e
	}}
	var begun []provider.Endpoint
	begin := func(e provider.Endpoint) error { begun = append(begun, e); return nil }
	e, err := p.DialEarly(t.Context(), netip.AddrPort{}, l.Addr(), begin)
	require.NoError(t, err)
	require.Len(t, begun, 2)
	assert.Same(t, begun[1], e)
	assert.True(t, e.(*faulty.Endpoint).Dialed)
	assert.True(t, begun[0].(*faulty.Endpoint).Closed())
	assert.Equal(t, 3, p.Uses().Endpoints)
	e.Close()

	// An error of begin ends what there is, also where a hook dials.
	no := func(provider.Endpoint) error { return provider.StatusNoMemory }
	for _, hook := range []func(context.Context, netip.AddrPort, netip.AddrPort) (provider.Endpoint, error){nil, inner.Dial} {
		before := p.Uses()
		p.On.Dial = hook
		p.Provider = inner
		_, err = p.DialEarly(t.Context(), netip.AddrPort{}, l.Addr(), no)
		assert.Equal(t, provider.StatusNoMemory, err)
		assert.Equal(t, before.Endpoints+1, p.Uses().Endpoints, "the listener's")
	}
}

// TestRequestHooks: one that may wait is not called where nobody may.
func TestRequestHooks(t *testing.T) {
	p := newProvider(t)
	waits := false
	p.OnRequest = func(r *faulty.Request) {
		r.On.LocalAddr = func() netip.AddrPort { return anywhere }
		if waits {
			r.On.Accept = r.Request.Accept
		}
	}
	l, err := p.Listen(anywhere, 2)
	require.NoError(t, err)
	defer l.Close()
	for range 2 {
		go p.Dial(t.Context(), netip.AddrPort{}, l.Addr())
		r, err := l.Accept()
		require.NoError(t, err)
		assert.Equal(t, anywhere, r.LocalAddr())
		_, early := r.(provider.EarlyRequest)
		assert.Equal(t, !waits, early)
		require.NoError(t, r.Reject(nil))
		waits = true
	}
	p.OnListener = func(l *faulty.Listener) {
		l.On.Accept = func() (provider.Request, error) { return nil, provider.StatusLink }
	}
	l2, err := p.Listen(anywhere, 1)
	require.NoError(t, err)
	defer l2.Close()
	l2.(provider.RequestNotifier).OnRequest(func(provider.Request) { t.Error("told of a request") })
	go p.Dial(t.Context(), netip.AddrPort{}, l2.Addr())
	_, err = l2.Accept()
	assert.Equal(t, provider.StatusLink, err)
}

// TestCompletions: some are made up, some changed, some dropped.
func TestCompletions(t *testing.T) {
	p := newProvider(t)
	a, b := connect(t, p)
	e := b.(*faulty.Endpoint)
	m, err := b.Allocate(10)
	require.NoError(t, err)
	defer b.Deregister(m.Handle)
	woken := 0
	b.OnWake(func() { woken++ })
	for i := range 3 {
		require.NoError(t, b.PostRecv(provider.Recv{Context: uint64(i), Buffer: provider.Segment{Bytes: m.Bytes, Handle: m.Handle}}))
		require.NoError(t, a.PostSend(provider.Send{Inline: [2][]byte{[]byte("abc")}}))
	}
	e.On.See = func(c *provider.Completion) bool {
		c.Len++
		return c.Context != 1
	}
	assert.False(t, b.Arm(provider.WakeNone))
	e.Inject(provider.Completion{Context: 9, Op: provider.OpSend})
	assert.Equal(t, 1, woken)
	c := make([]provider.Completion, 3)
	assert.Equal(t, []provider.Completion{
		{Context: 0, Op: provider.OpRecv, Len: 4}, {Context: 2, Op: provider.OpRecv, Len: 4}, {Context: 9, Op: provider.OpSend},
	}, c[:b.Poll(c)])
	assert.Zero(t, b.Poll(c))
	assert.False(t, b.Arm(provider.WakeAny))
	e.Muted.Store(true)
	e.Inject(provider.Completion{Context: 10, Op: provider.OpSend})
	assert.Equal(t, 1, woken)
	assert.True(t, b.Arm(provider.WakeAny))
	e.Muted.Store(false)
	require.NoError(t, b.Close())
	e.Inject(provider.Completion{Context: 11, Op: provider.OpSend})
	assert.Equal(t, 1, woken)
}

// TestExtensions: a hook is asked by way of the extension, too.
func TestExtensions(t *testing.T) {
	p := newProvider(t)
	a, _ := connect(t, p)
	e := a.(*faulty.Endpoint)
	e.On.RDMA = func(op provider.Op, _ provider.RDMA) error {
		assert.Equal(t, provider.OpRead, op)
		return provider.StatusQueueFull
	}
	e.On.Append = func(b []byte) bool { return len(b) == 7 }
	x, err := a.Extension(provider.GUIDRDMARead)
	require.NoError(t, err)
	assert.Equal(t, provider.StatusQueueFull, x.(provider.RDMAReader).PostRead(provider.RDMA{}))
	x, err = a.Extension(provider.GUIDAppender)
	require.NoError(t, err)
	assert.True(t, x.(provider.Appender).Append(make([]byte, 7)))
	e.On.Extension = func(provider.GUID) (any, error) { return nil, provider.StatusUnsupported }
	_, err = a.Extension(provider.GUIDAppender)
	assert.Equal(t, provider.StatusUnsupported, err)
}
