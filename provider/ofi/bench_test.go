//go:build ofi && cgo && linux

package ofi

import (
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"sansock/session"
)

// pipes are ways to compare: Go's TCP, and a session over the fabric under test, between the same addresses.
var pipes = []struct {
	name string
	make func(b *testing.B) (x, y io.ReadWriteCloser)
}{
	{"tcp", func(b *testing.B) (x, y io.ReadWriteCloser) {
		l, err := net.Listen("tcp", testAddr.String())
		require.NoError(b, err)
		defer l.Close()
		x, err = net.Dial("tcp", l.Addr().String())
		require.NoError(b, err)
		y, err = l.Accept()
		require.NoError(b, err)
		return x, y
	}},
	{"ofi", func(b *testing.B) (x, y io.ReadWriteCloser) {
		x, y, err := negotiated(opened(b), session.Config{})
		require.NoError(b, err)
		return x, y
	}},
}

func BenchmarkRoundTrip(b *testing.B) {
	for _, size := range []int{64, 4 << 10, 64 << 10} {
		for _, p := range pipes {
			b.Run(fmt.Sprintf("%d/%s", size, p.name), func(b *testing.B) {
				x, y := p.make(b)
				defer x.Close()
				defer y.Close()
				go func() {
					buf := make([]byte, size)
					for {
						if _, err := io.ReadFull(y, buf); err != nil {
							return
						}
						if _, err := y.Write(buf); err != nil {
							return
						}
					}
				}()
				buf := make([]byte, size)
				for b.Loop() {
					if _, err := x.Write(buf); err != nil {
						b.Fatal(err)
					}
					if _, err := io.ReadFull(x, buf); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkStream(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 64 << 10, 1 << 20} {
		for _, p := range pipes {
			b.Run(fmt.Sprintf("%d/%s", size, p.name), func(b *testing.B) {
				x, y := p.make(b)
				defer x.Close()
				defer y.Close()
				go func() {
					buf := make([]byte, size)
					for {
						if _, err := y.Read(buf); err != nil {
							return
						}
					}
				}()
				buf := make([]byte, size)
				b.SetBytes(int64(size))
				for b.Loop() {
					if _, err := x.Write(buf); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
