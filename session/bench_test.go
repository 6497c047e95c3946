package session_test

import (
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/session"
)

// tcpPair is the same over loopback TCP, to compare with.
func tcpPair(t testing.TB) (net.Conn, net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	x, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	y, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { x.Close(); y.Close() })
	return x, y
}

func forBoth(b *testing.B, f func(b *testing.B, x, y io.ReadWriter)) {
	b.Run("net=tcp", func(b *testing.B) {
		x, y := tcpPair(b)
		f(b, x, y)
	})
	b.Run("net=san", func(b *testing.B) {
		x, y := pair(b, emu.Config{}, emu.Config{}, session.Config{})
		f(b, x, y)
	})
}

func BenchmarkRoundTrip(b *testing.B) {
	for _, n := range []int{1, 64, 1 << 10, 4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("size=%d", n), func(b *testing.B) {
			forBoth(b, func(b *testing.B, x, y io.ReadWriter) {
				go func() {
					buf := make([]byte, n)
					for {
						if _, err := io.ReadFull(y, buf); err != nil {
							return
						}
						if _, err := y.Write(buf); err != nil {
							return
						}
					}
				}()
				buf := make([]byte, n)
				b.ReportAllocs()
				for b.Loop() {
					x.Write(buf)
					if _, err := io.ReadFull(x, buf); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

func BenchmarkStream(b *testing.B) {
	for _, n := range []int{64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("size=%d", n), func(b *testing.B) {
			forBoth(b, func(b *testing.B, x, y io.ReadWriter) {
				done := make(chan int64)
				total := int64(0)
				go func() {
					buf := make([]byte, max(n, 64<<10))
					got := int64(0)
					for {
						m, err := y.Read(buf)
						got += int64(m)
						if err != nil {
							break
						}
					}
					done <- got
				}()
				buf := make([]byte, n)
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					m, err := x.Write(buf)
					if err != nil {
						b.Fatal(err)
					}
					total += int64(m)
				}
				x.(interface{ CloseWrite() error }).CloseWrite()
				if got := <-done; got != total {
					b.Fatalf("wrote %d, read %d", total, got)
				}
			})
		})
	}
}
