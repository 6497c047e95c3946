package sanswitch

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sansock/emu"
)

// BenchmarkDialPlain dials a listener that is on TCP alone, with net and with a switch in turn,
// and tells the median and the 99th percentile of each, in microseconds: what a host without a
// SAN listener pays for having been asked.
func BenchmarkDialPlain(b *testing.B) {
	p, err := emu.New(emu.Config{})
	require.NoError(b, err)
	s := newSwitch(b, Config{}, p)
	for _, c := range []struct{ name, listen, host string }{
		{"literal", "127.0.0.1:0", "127.0.0.1"},
		{"two", "127.0.0.2:0", "two.test"},   // the first of two addresses refuses
		{"both", "127.0.0.1:0", "both.test"}, // ::1 refuses, as of localhost
	} {
		b.Run(c.name, func(b *testing.B) {
			ln, err := net.Listen("tcp", c.listen)
			require.NoError(b, err)
			defer ln.Close()
			go func() {
				for {
					c, err := ln.Accept()
					if err != nil {
						return
					}
					go func() { // the client ends it, by a reset
						io.Copy(io.Discard, c)
						c.Close()
					}()
				}
			}()
			d := &net.Dialer{}
			switch c.host {
			case "two.test":
				d.Resolver = resolver(b, c.host, "127.0.0.1", "127.0.0.2")
			case "both.test":
				d.Resolver = resolver(b, c.host, "::1", "127.0.0.1")
			}
			address := fmt.Sprintf("%s:%s", c.host, portOf(ln.Addr()))
			took := make(map[string][]time.Duration)
			once := func(who string, dial func() (net.Conn, error)) {
				start := time.Now()
				c, err := dial()
				took[who] = append(took[who], time.Since(start))
				require.NoError(b, err)
				c.(*net.TCPConn).SetLinger(0)
				c.Close()
			}
			for b.Loop() {
				once("net", func() (net.Conn, error) { return d.DialContext(context.Background(), "tcp", address) })
				once("san", func() (net.Conn, error) {
					r, err := s.Dial(context.Background(), d, "tcp", address)
					return r.Conn, err
				})
			}
			b.ReportMetric(0, "ns/op")
			for who, ds := range took {
				slices.Sort(ds)
				at := func(q float64) float64 { return float64(ds[int(q*float64(len(ds)-1))].Nanoseconds()) / 1e3 }
				b.ReportMetric(at(0.5), who+"-p50-µs")
				b.ReportMetric(at(0.99), who+"-p99-µs")
			}
		})
	}
}
