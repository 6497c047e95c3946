package emu

import (
	"context"
	"net/netip"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"sansock/provider"
)

// end is one end in a test: an endpoint with a parked waiter, as a session has it.
type end struct {
	provider.Endpoint
	wake chan struct{}
	buf  [1]provider.Completion
	t    testing.TB
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
			<-x.wake
		}
	}
}

// all polls what there is.
func (x *end) all() []provider.Completion {
	var all []provider.Completion
	for x.Poll(x.buf[:]) == 1 {
		all = append(all, x.buf[0])
	}
	return all
}

// reader is the end's RDMA read.
func (x *end) reader() provider.RDMAReader {
	r, err := x.Extension(provider.GUIDRDMARead)
	require.NoError(x.t, err)
	return r.(provider.RDMAReader)
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

func inline(s string) provider.Send {
	return provider.Send{Inline: [2][]byte{[]byte(s)}, Solicited: true}
}

func (x *end) say(s string) { require.NoError(x.t, x.PostSend(inline(s))) }

// local is memory registered for local use.
func (x *end) local(b []byte) provider.Segment {
	r, err := x.Register(b)
	require.NoError(x.t, err)
	return r.Segment(0, len(b))
}

func (x *end) expose(b []byte, rights provider.Rights) provider.Region {
	r, err := x.Expose(b, rights)
	require.NoError(x.t, err)
	return r
}

var loopback = netip.MustParseAddrPort("127.0.0.1:0")

// accept accepts the next request.
func accept(l provider.Listener) (provider.Endpoint, error) {
	r, err := l.Accept()
	if err != nil {
		return nil, err
	}
	return r.Accept(context.Background())
}

// connected returns the ends of a connection from one provider to another.
func connected(t testing.TB, from, to *Provider) (*end, *end) {
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
	wg.Wait()
	require.NoError(t, err)
	require.NoError(t, berr)
	t.Cleanup(func() { a.Close(); b.Close() })
	return newEnd(t, a), newEnd(t, b)
}

// open opens a provider, on a fabric of its own unless told otherwise.
func open(t testing.TB, c Config) *Provider {
	if c.Fabric == nil {
		c.Fabric = NewFabric()
	}
	p, err := New(c)
	require.NoError(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

// pair is a connection of a provider to itself.
func pair(t testing.TB, c Config) (*end, *end) {
	p := open(t, c)
	return connected(t, p, p)
}

// both is a connection between two differently made providers.
func both(t testing.TB, a, b Config) (*end, *end) {
	a.Fabric = NewFabric()
	b.Fabric = a.Fabric
	return connected(t, open(t, a), open(t, b))
}
