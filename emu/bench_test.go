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

var loopback = netip.MustParseAddrPort("127.0.0.1:0")

// connectedBy returns the ends of a connection from one provider to another.
func connectedBy(t testing.TB, from, to *Provider) (*end, *end) {
	l, err := to.Listen(loopback, 1)
	require.NoError(t, err)
	defer l.Close()
	var (
		b    provider.Endpoint
		berr error
		wg   sync.WaitGroup
	)
	wg.Go(func() {
		var r provider.Request
		if r, berr = l.Accept(); berr == nil {
			b, berr = r.Accept(context.Background())
		}
	})
	a, err := from.Dial(context.Background(), netip.AddrPort{}, l.Addr())
	require.NoError(t, err)
	wg.Wait()
	require.NoError(t, berr)
	t.Cleanup(func() { a.Close(); b.Close() })
	return newEnd(t, a), newEnd(t, b)
}

func open(t testing.TB, c Config) *Provider {
	if c.Fabric == nil {
		c.Fabric = NewFabric()
	}
	p, err := New(c)
	require.NoError(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

// receives posts n receives of size bytes.
func (x *end) receives(n, size int) provider.Region {
	r, err := x.Allocate(n * size)
	require.NoError(x.t, err)
	for i := range n {
		require.NoError(x.t, x.PostRecv(provider.Recv{Context: uint64(i), Buffer: r.Segment(i*size, size)}))
	}
	return r
}

func BenchmarkPingPong(b *testing.B) {
	for _, bb := range []struct {
		name string
		size int
	}{{"64", 64}, {"1K", 1024}, {"4K", 4096}, {"64K", 65536}} {
		b.Run(bb.name, func(b *testing.B) {
			p := open(b, Config{})
			x, y := connectedBy(b, p, p)
			const depth = 8
			ry, rx := y.receives(depth, bb.size), x.receives(depth, bb.size)
			msg := make([]byte, bb.size)
			n := b.N
			turn := func(e *end, r *provider.Region, send bool) {
				for range n {
					if send {
						e.PostSend(provider.Send{Inline: [2][]byte{msg}, Solicited: true})
					}
					c := e.next()
					e.PostRecv(provider.Recv{Context: c.Context, Buffer: r.Segment(int(c.Context)*bb.size, bb.size)})
					if !send {
						e.PostSend(provider.Send{Inline: [2][]byte{msg}, Solicited: true})
					}
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			wg.Go(func() { turn(y, &ry, false) })
			turn(x, &rx, true)
			wg.Wait()
		})
	}
}

// BenchmarkChan is the floor of BenchmarkPingPong: two channels and nothing else.
func BenchmarkChan(b *testing.B) {
	x, y := make(chan struct{}, 1), make(chan struct{}, 1)
	go func() {
		for range b.N {
			<-x
			y <- struct{}{}
		}
	}()
	for range b.N {
		x <- struct{}{}
		<-y
	}
}

// BenchmarkOneWay is a message without any waiting: post the receive, arm, send, poll.
func BenchmarkOneWay(b *testing.B) {
	p := open(b, Config{})
	x, y := connectedBy(b, p, p)
	y.OnWake(func() {})
	r := y.receives(8, 1024)
	msg := make([]byte, 64)
	var c [8]provider.Completion
	var from, to provider.Endpoint = x.Endpoint, y.Endpoint
	b.ReportAllocs()
	for b.Loop() {
		to.Arm(provider.WakeAny)
		from.PostSend(provider.Send{Inline: [2][]byte{msg[:16], msg[16:]}, Solicited: true})
		for _, c := range c[:to.Poll(c[:])] {
			to.PostRecv(provider.Recv{Context: c.Context, Buffer: r.Segment(int(c.Context)*1024, 1024)})
		}
	}
}
