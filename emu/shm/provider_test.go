//go:build linux

package shm

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"sansock/provider"
)

// san is a node as a provider: what package emu makes of it, but for the connections within the process.
type san struct {
	*Node
	mu        sync.Mutex
	listeners map[*listener]struct{}
	closed    bool
}

func newSAN(c Config) *san {
	return &san{Node: Open(c), listeners: make(map[*listener]struct{})}
}

func (s *san) Attributes() provider.Attributes { return attributes }

func (s *san) Name() string { return s.Node.Name }

func (s *san) Prefixes() ([]netip.Prefix, error) {
	return []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("::1/128")}, nil
}

func (s *san) Dial(ctx context.Context, local, remote netip.AddrPort) (provider.Endpoint, error) {
	if err := ctx.Err(); err != nil {
		return nil, s.dialError(ctx, err)
	}
	if !local.Addr().IsValid() {
		local = netip.AddrPortFrom(remote.Addr(), local.Port())
	}
	return s.Node.Dial(ctx, local, remote)
}

// listener queues requests.
type listener struct {
	s       *san
	bind    *Rendezvous
	backlog int
	mu      sync.Mutex
	cond    *sync.Cond
	queue   []*Request
	closed  bool
}

func (s *san) Listen(local netip.AddrPort, backlog int) (provider.Listener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, s.failure("listen", provider.StatusClosed, nil)
	}
	if !local.Addr().IsLoopback() && !local.Addr().IsUnspecified() {
		return nil, s.failure("listen", provider.StatusAddrNotAvail, nil)
	}
	l := &listener{s: s, backlog: max(backlog, 1)}
	l.cond = sync.NewCond(&l.mu)
	for try := 0; ; try++ {
		a := local
		if a.Port() == 0 {
			a = netip.AddrPortFrom(a.Addr(), uint16(20000+rand.IntN(10000)))
		}
		var err error
		if l.bind, err = s.Bind(a, l); err == nil {
			break
		}
		if local.Port() != 0 || try > 50 {
			return nil, err
		}
	}
	s.listeners[l] = struct{}{}
	return l, nil
}

func (l *listener) Requested(r *Request) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return provider.StatusNoListener
	case len(l.queue) >= l.backlog:
		return provider.StatusRefused
	}
	l.queue = append(l.queue, r)
	l.cond.Signal()
	return nil
}

func (l *listener) Withdrawn(r *Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = slices.DeleteFunc(l.queue, func(x *Request) bool { return x == r })
}

func (l *listener) Accept() (provider.Request, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) == 0 && !l.closed {
		l.cond.Wait()
	}
	if l.closed {
		return nil, l.s.failure("accept", provider.StatusClosed, nil)
	}
	r := l.queue[0]
	l.queue = slices.Delete(l.queue, 0, 1)
	return r, nil
}

func (l *listener) Addr() netip.AddrPort { return l.bind.addr }

func (l *listener) Close() error {
	l.bind.Close()
	l.mu.Lock()
	l.closed = true
	queue := l.queue
	l.queue = nil
	l.cond.Broadcast()
	l.mu.Unlock()
	for _, r := range queue {
		r.Reject(nil)
	}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	delete(l.s.listeners, l)
	return nil
}

func (s *san) Close() error {
	s.mu.Lock()
	s.closed = true
	var all []*listener
	for l := range s.listeners {
		all = append(all, l)
	}
	s.mu.Unlock()
	for _, l := range all {
		l.Close()
	}
	return s.Node.Close()
}

// end is one end in a test, with a parked waiter.
type end struct {
	provider.Endpoint
	wake chan struct{}
	buf  [1]provider.Completion
	t    testing.TB

	parked, slept, waits int // times
}

func newEnd(t testing.TB, e provider.Endpoint) *end {
	x := &end{Endpoint: e, wake: make(chan struct{}, 1), t: t}
	e.OnWake(func() {
		select {
		case x.wake <- struct{}{}:
		default:
		}
	})
	return x
}

// next waits for a completion.
func (x *end) next() provider.Completion {
	for {
		if x.Poll(x.buf[:]) == 1 {
			return x.buf[0]
		}
		if !x.Arm(provider.WakeAny) {
			x.slept++
			<-x.wake
		}
	}
}

// nextParked waits as a session does that is the only one, and spins in every other wait alone. So it sleeps parked sooner
// or later.
func (x *end) nextParked() provider.Completion {
	e := x.core()
	defer e.waiter.Pin()()
	for x.Poll(x.buf[:]) == 0 {
		if x.waits++; x.waits%2 == 0 && e.Spin() {
			continue
		}
		if e.Seat() {
			ready := e.Arm(provider.WakeAny)
			e.Sleep(ready)
			x.parked++
		} else if !e.Arm(provider.WakeAny) {
			x.slept++
			<-x.wake
		}
	}
	return x.buf[0]
}

// nextSpinning is next after a moment of spinning.
func (x *end) nextSpinning() provider.Completion {
	defer x.core().waiter.Pin()()
	x.core().Spin()
	return x.next()
}

// receives posts n receives of size bytes, with contexts from 0 on.
func (x *end) receives(n, size int) provider.Region {
	r, err := x.Allocate(n * size)
	require.NoError(x.t, err)
	for i := range n {
		require.NoError(x.t, x.PostRecv(provider.Recv{Context: uint64(i), Buffer: r.Segment(i*size, size)}))
	}
	return r
}

func (x *end) say(s string) {
	require.NoError(x.t, x.PostSend(provider.Send{Inline: [2][]byte{[]byte(s)}, Solicited: true}))
}

var loopback = netip.MustParseAddrPort("127.0.0.1:0")

func accept(l provider.Listener) (provider.Endpoint, error) {
	r, err := l.Accept()
	if err != nil {
		return nil, err
	}
	return r.Accept(context.Background())
}

// pair is a connection from one node to another.
func pair(t testing.TB, from, to *san) (*end, *end) {
	l, err := to.Listen(loopback, 1)
	require.NoError(t, err)
	defer l.Close()
	var (
		b    provider.Endpoint
		berr error
		wg   sync.WaitGroup
	)
	wg.Go(func() { b, berr = accept(l) })
	a, err := from.Dial(context.Background(), netip.AddrPort{}, l.Addr())
	require.NoError(t, err)
	wg.Wait()
	require.NoError(t, berr)
	t.Cleanup(func() { a.Close(); b.Close() })
	return newEnd(t, a), newEnd(t, b)
}

func openSAN(t testing.TB, c Config) *san {
	s := newSAN(c)
	t.Cleanup(func() { s.Close() })
	return s
}

// Connections of a link share a bounded number of large blocks; small ones they get all the same.
func TestBulkIsBounded(t *testing.T) {
	p := start(t, "plain", space(t))
	s := openSAN(t, Config{Space: space(t)})
	ep, err := s.Dial(context.Background(), netip.AddrPort{}, p.addr)
	require.NoError(t, err)
	defer ep.Close()
	const size = 4 << 20
	var regions []provider.Region
	for range maxBulk / size {
		r, err := ep.Allocate(size)
		require.NoError(t, err)
		regions = append(regions, r)
	}
	_, err = ep.Allocate(ownSegment)
	require.Equal(t, provider.StatusLimit, provider.StatusOf(err))
	_, err = ep.Allocate(ownSegment / 2)
	require.NoError(t, err)
	require.NoError(t, ep.Deregister(regions[0].Handle))
	_, err = ep.Allocate(size)
	require.NoError(t, err)
}
