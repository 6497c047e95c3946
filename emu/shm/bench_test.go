//go:build linux

package shm

import (
	"fmt"
	"io"
	"net"
	"testing"

	"sansock/provider"
)

// BenchmarkRoundTrip and BenchmarkStream compare sessions between two processes with TCP in the same run.
func BenchmarkRoundTrip(b *testing.B) {
	eachWay(b, "echo", func(b *testing.B, c net.Conn, n int) {
		buf := make([]byte, n)
		for b.Loop() {
			if _, err := c.Write(buf); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(c, buf); err != nil {
				b.Fatal(err)
			}
		}
	}, 1, 64, 1<<10, 64<<10, 1<<20)
}

func BenchmarkStream(b *testing.B) {
	eachWay(b, "sink", func(b *testing.B, c net.Conn, n int) {
		buf := make([]byte, n)
		b.SetBytes(int64(n))
		for b.Loop() {
			if _, err := c.Write(buf); err != nil {
				b.Fatal(err)
			}
		}
	}, 64, 4<<10, 64<<10, 1<<20)
}

// BenchmarkSmall compares the ways in which 64 bytes may be on their way: as a message of their own, and behind another
// one. Both ends are in this goroutine; the receiver takes what there is when its receives, or its one receive, are full.
func BenchmarkSmall(b *testing.B) {
	msg := make([]byte, 64)
	b.Run("PostSend", func(b *testing.B) {
		x, y := appendPair(b)
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
		x, y := appendPair(b)
		r, a := y.receives(1, 64<<10), provider.Appender(x.core())
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

func eachWay(b *testing.B, role string, run func(*testing.B, net.Conn, int), sizes ...int) {
	p := start(b, role, space(b))
	tcp := start(b, "tcp-"+role, "")
	s := openSAN(b, Config{Space: space(b)})
	for _, n := range sizes {
		b.Run(fmt.Sprintf("tcp/%d", n), func(b *testing.B) {
			c, err := net.Dial("tcp", tcp.addr.String())
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			run(b, c, n)
		})
		b.Run(fmt.Sprintf("shm/%d", n), func(b *testing.B) {
			c := p.dial(b, s)
			defer c.Close()
			run(b, conn{c}, n)
		})
	}
}

// BenchmarkMeet measures two nodes that meet for the first time, and the first connection.
func BenchmarkMeet(b *testing.B) {
	p := start(b, "plain", space(b))
	for b.Loop() {
		s := newSAN(Config{Space: space(b)})
		e, err := s.Dial(b.Context(), loopback, p.addr)
		if err != nil {
			b.Fatal(err)
		}
		e.Close()
		s.Close()
	}
}
