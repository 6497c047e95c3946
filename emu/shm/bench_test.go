//go:build linux

package shm

import (
	"fmt"
	"io"
	"net"
	"testing"
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
