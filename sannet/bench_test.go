package sannet_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// onBenchPaths runs f over plain TCP and over the SAN.
func onBenchPaths(b *testing.B, f func(*testing.B, path)) {
	for _, newPath := range []func(testing.TB) path{tcpPath, sanPath} {
		p := newPath(b)
		b.Run(p.name, func(b *testing.B) { f(b, p) })
	}
}

func sizeName(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%dMiB", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%dKiB", n>>10)
	}
	return fmt.Sprintf("%dB", n)
}

// BenchmarkRoundTrip sends a message and waits for an answer of the same size.
func BenchmarkRoundTrip(b *testing.B) {
	for _, size := range []int{1, 64, 1 << 10, 64 << 10, 1 << 20} {
		b.Run(sizeName(size), func(b *testing.B) {
			onBenchPaths(b, func(b *testing.B, p path) {
				c, sv, err := p.connect("tcp", "127.0.0.1:0")
				require.NoError(b, err)
				echoed := make(chan struct{})
				go func() {
					defer close(echoed)
					buf := make([]byte, size)
					for {
						if _, err := io.ReadFull(sv, buf); err != nil {
							return
						}
						if _, err := sv.Write(buf); err != nil {
							return
						}
					}
				}()
				buf := make([]byte, size)
				b.SetBytes(2 * int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := c.Write(buf); err != nil {
						b.Fatal(err)
					}
					if _, err := io.ReadFull(c, buf); err != nil {
						b.Fatal(err)
					}
				}
				c.Close()
				<-echoed
				sv.Close()
			})
		})
	}
}

// BenchmarkStream writes in one direction, with a reader that keeps up.
func BenchmarkStream(b *testing.B) {
	for _, size := range []int{64, 4 << 10, 64 << 10, 1 << 20} {
		b.Run(sizeName(size), func(b *testing.B) {
			onBenchPaths(b, func(b *testing.B, p path) {
				c, sv, err := p.connect("tcp", "127.0.0.1:0")
				require.NoError(b, err)
				read := make(chan int64)
				go func() {
					buf := make([]byte, max(size, 64<<10))
					var total int64
					for {
						n, err := sv.Read(buf)
						total += int64(n)
						if err != nil {
							break
						}
					}
					read <- total
				}()
				buf := make([]byte, size)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				var written int64
				for b.Loop() {
					if _, err := c.Write(buf); err != nil {
						b.Fatal(err)
					}
					written += int64(size)
				}
				c.Close()
				if n := <-read; n != written {
					b.Fatalf("wrote %d bytes, read %d", written, n)
				}
				sv.Close()
			})
		})
	}
}

// BenchmarkHTTP sends requests one after the other over one connection.
func BenchmarkHTTP(b *testing.B) {
	for _, size := range []int{100, 1 << 20} {
		b.Run(sizeName(size), func(b *testing.B) {
			onBenchPaths(b, func(b *testing.B, p path) {
				content := bytes.Repeat([]byte{'x'}, size)
				l, err := p.listen("tcp", "127.0.0.1:0")
				require.NoError(b, err)
				srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write(content) })}
				go srv.Serve(l)
				defer srv.Close()
				tr := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
					return p.dial(ctx, network, address)
				}}
				defer tr.CloseIdleConnections()
				client := &http.Client{Transport: tr}
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					r, err := client.Get("http://" + l.Addr().String())
					if err != nil {
						b.Fatal(err)
					}
					n, err := io.Copy(io.Discard, r.Body)
					r.Body.Close()
					if err != nil || n != int64(size) {
						b.Fatal(n, err)
					}
				}
			})
		})
	}
}

// BenchmarkConnect dials, accepts and closes.
func BenchmarkConnect(b *testing.B) {
	onBenchPaths(b, func(b *testing.B, p path) {
		l, err := p.listen("tcp", "127.0.0.1:0")
		require.NoError(b, err)
		defer l.Close()
		b.ReportAllocs()
		for b.Loop() {
			c, err := p.dial(context.Background(), "tcp", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			sv, err := l.Accept()
			if err != nil {
				b.Fatal(err)
			}
			c.(conn).SetLinger(0) // no ports in TIME-WAIT
			c.Close()
			sv.Close()
		}
	})
}
