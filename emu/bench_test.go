package emu

import (
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"sansock/provider"
)

func sizeName(n int) string {
	switch {
	case n >= 1<<20:
		return strconv.Itoa(n>>20) + "M"
	case n >= 1<<10:
		return strconv.Itoa(n>>10) + "K"
	}
	return strconv.Itoa(n)
}

// BenchmarkChan is the floor of BenchmarkPingPong: two switches of goroutines and nothing else.
func BenchmarkChan(b *testing.B) {
	x, y := make(chan struct{}, 1), make(chan struct{}, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		for range b.N {
			<-x
			y <- struct{}{}
		}
	})
	for range b.N {
		x <- struct{}{}
		<-y
	}
	wg.Wait()
}

// BenchmarkPingPong has both ends asleep while the other works.
func BenchmarkPingPong(b *testing.B) {
	for _, size := range []int{1, 64, 1 << 10, 4 << 10, 64 << 10} {
		b.Run(sizeName(size), func(b *testing.B) {
			x, y := pair(b, Config{})
			const depth = 8
			ry, rx := y.receives(depth, size), x.receives(depth, size)
			msg := make([]byte, size)
			take := func(e *end, r *provider.Region) {
				c := e.next()
				e.PostRecv(provider.Recv{Context: c.Context, Buffer: r.Segment(int(c.Context)*size, size)})
			}
			n := b.N
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			wg.Go(func() {
				for range n {
					take(y, &ry)
					y.PostSend(provider.Send{Inline: [2][]byte{msg}, Solicited: true})
				}
			})
			for range n {
				x.PostSend(provider.Send{Inline: [2][]byte{msg}, Solicited: true})
				take(x, &rx)
			}
			wg.Wait()
		})
	}
}

// BenchmarkOneWay is a message without any waiting: arm, send, poll, post the receive again.
func BenchmarkOneWay(b *testing.B) {
	x, y := pair(b, Config{})
	y.OnWake(func() {})
	r := y.receives(8, 1024)
	msg := make([]byte, 64)
	var c [8]provider.Completion
	b.ReportAllocs()
	for b.Loop() {
		y.Arm(provider.WakeAny)
		x.PostSend(provider.Send{Inline: [2][]byte{msg[:16], msg[16:]}, Solicited: true})
		for _, c := range c[:y.Poll(c[:])] {
			y.PostRecv(provider.Recv{Context: c.Context, Buffer: r.Segment(int(c.Context)*1024, 1024)})
		}
	}
}

// BenchmarkSmall compares the ways in which 64 bytes may be on their way: as a message of their
// own, and behind another one. The receiver takes what there is when its receives, or its one
// receive, are full, in the same goroutine.
func BenchmarkSmall(b *testing.B) {
	msg := make([]byte, 64)
	b.Run("PostSend", func(b *testing.B) {
		x, y := pair(b, Config{})
		const n = 32
		r := y.receives(n, 64)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if i%n == 0 && i > 0 {
				for y.Poll(y.buf[:]) > 0 {
					k := y.buf[0].Context
					y.PostRecv(provider.Recv{Context: k, Buffer: r.Segment(int(k)*64, 64)})
				}
			}
			x.PostSend(provider.Send{Inline: [2][]byte{msg}, Solicited: true})
		}
	})
	b.Run("Append", func(b *testing.B) {
		x, y := pair(b, Config{})
		r, a := y.receives(1, 64<<10), x.grower()
		b.ReportAllocs()
		for b.Loop() {
			if a.Append(msg) {
				continue
			}
			if y.Poll(y.buf[:]) > 0 {
				y.PostRecv(provider.Recv{Buffer: r.Segment(0, len(r.Bytes))})
			}
			x.PostSend(provider.Send{Inline: [2][]byte{msg}, Solicited: true, Open: true})
		}
	})
}

// BenchmarkStream is messages in one direction as fast as credits allow: the receiver returns half
// of them at a time.
func BenchmarkStream(b *testing.B) {
	for _, size := range []int{64, 4 << 10, 64 << 10} {
		b.Run(sizeName(size), func(b *testing.B) {
			x, y := pair(b, Config{})
			const depth = 16
			r := y.receives(depth, size)
			x.receives(4, 8)
			credit := make([]byte, 8)
			msg := make([]byte, size)
			n := b.N
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			wg.Go(func() {
				for i := range n {
					c := y.next()
					y.PostRecv(provider.Recv{Context: c.Context, Buffer: r.Segment(int(c.Context)*size, size)})
					if i%(depth/2) == depth/2-1 {
						y.PostSend(provider.Send{Inline: [2][]byte{credit}, Solicited: true})
					}
				}
			})
			rx, _ := x.Allocate(8)
			credits := depth
			for range n {
				for credits == 0 {
					c := x.next()
					x.PostRecv(provider.Recv{Context: c.Context, Buffer: rx.Segment(0, 8)})
					credits += depth / 2
				}
				credits--
				x.PostSend(provider.Send{Inline: [2][]byte{msg}, Solicited: true})
			}
			wg.Wait()
		})
	}
}

// BenchmarkRDMARead is one copy, and what surrounds it.
func BenchmarkRDMARead(b *testing.B) {
	for _, size := range []int{1, 16 << 10, 64 << 10, 1 << 20, 16 << 20} {
		b.Run(sizeName(size), func(b *testing.B) {
			x, y := pair(b, Config{})
			src := y.expose(make([]byte, size), provider.RightRead)
			dst := provider.Segment{Bytes: make([]byte, size)}
			read := x.reader()
			var c [1]provider.Completion
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				read.PostRead(provider.RDMA{Local: dst, Remote: src.Descriptor})
				if x.Poll(c[:]) != 1 || c[0].Status != provider.StatusOK {
					b.Fatal(c)
				}
			}
		})
	}
}

// BenchmarkExpose makes and ends a registration.
func BenchmarkExpose(b *testing.B) {
	x, _ := pair(b, Config{})
	mem := make([]byte, 64<<10)
	b.ReportAllocs()
	for b.Loop() {
		r, _ := x.Expose(mem, provider.RightRead)
		x.Deregister(r.Handle)
	}
}

// BenchmarkIdle reports what a connection at rest weighs, both ends together with eight small
// receives each.
func BenchmarkIdle(b *testing.B) {
	p := open(b, Config{})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	ends := make([]provider.Endpoint, 0, 2*b.N)
	for range b.N {
		x, y := connected(b, p, p)
		ends = append(ends, x, y)
		x.receives(8, 256)
		y.receives(8, 256)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(b.N), "heap-B/op")
	require.Len(b, ends, 2*b.N)
}
