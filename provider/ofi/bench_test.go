//go:build ofi && cgo && linux

package ofi

import (
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/provider"
	"sansock/session"
)

// carriers are what figures compare, both ends in this process: Go's TCP, a session over the emulator, and one over the
// fabric under test.
var carriers = []struct {
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
	{"emu", func(b *testing.B) (x, y io.ReadWriteCloser) {
		p, err := emu.New(emu.Config{})
		require.NoError(b, err)
		b.Cleanup(func() { p.Close() })
		return sessionOver(b, p)
	}},
	{"ofi", func(b *testing.B) (x, y io.ReadWriteCloser) { return sessionOver(b, opened(b)) }},
}

func sessionOver(b *testing.B, p provider.Provider) (x, y io.ReadWriteCloser) {
	x, y, err := negotiated(p, session.Config{})
	require.NoError(b, err)
	return x, y
}

const (
	roundTime = 40 * time.Millisecond // of each carrier in each round, at least
	maxOps    = 1 << 24
)

// BenchmarkFigures measures all carriers in turns, as often as -test.benchtime says (11x, for example). It reports
// the medians: microseconds of a round trip, or MB/s of a stream, and how many times better than TCP, which is the median
// of the ratios within the rounds.
func BenchmarkFigures(b *testing.B) {
	for _, size := range []int{64, 4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("roundtrip/%d", size), func(b *testing.B) {
			compare(b, "us", func(ns float64) float64 { return ns / 1e3 }, false, func(x, y io.ReadWriter) func(int) error {
				go echo(y, size)
				buf := make([]byte, size)
				return func(n int) error {
					for range n {
						if _, err := x.Write(buf); err != nil {
							return err
						}
						if _, err := io.ReadFull(x, buf); err != nil {
							return err
						}
					}
					return nil
				}
			})
		})
	}
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("stream/%d", size), func(b *testing.B) {
			compare(b, "MB/s", func(ns float64) float64 { return float64(size) / ns * 1e3 }, true, func(x, y io.ReadWriter) func(int) error {
				lengths := make(chan int)
				b.Cleanup(func() { close(lengths) })
				go drain(y, lengths)
				buf := make([]byte, size)
				return func(n int) error {
					lengths <- n * size
					for range n {
						if _, err := x.Write(buf); err != nil {
							return err
						}
					}
					_, err := x.Read(buf[:1]) // all has been read
					return err
				}
			})
		})
	}
}

// echo sends messages back.
func echo(c io.ReadWriter, size int) {
	buf := make([]byte, size)
	for {
		if _, err := io.ReadFull(c, buf); err != nil {
			return
		}
		if _, err := c.Write(buf); err != nil {
			return
		}
	}
}

// drain reads streams of the lengths given and says when it has one.
func drain(c io.ReadWriter, lengths <-chan int) {
	buf := make([]byte, 256<<10)
	for left := range lengths {
		for left > 0 {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			left -= n
		}
		if _, err := c.Write(buf[:1]); err != nil {
			return
		}
	}
}

// compare measures a workload over every carrier. begin connects it to two ends and returns what does it n times; value is
// the figure of a time in nanoseconds.
func compare(b *testing.B, unit string, value func(ns float64) float64, higher bool, begin func(x, y io.ReadWriter) func(n int) error) {
	runs := make([]func(int) error, len(carriers))
	ops := make([]int, len(carriers))
	timed := func(i, n int) time.Duration {
		start := time.Now()
		if err := runs[i](n); err != nil {
			b.Fatal(carriers[i].name, ": ", err)
		}
		return time.Since(start)
	}
	for i, c := range carriers {
		x, y := c.make(b)
		defer x.Close()
		defer y.Close()
		runs[i] = begin(x, y)
		// This warms up, too.
		for ops[i] = 1; timed(i, ops[i]) < roundTime && ops[i] < maxOps; ops[i] *= 2 {
		}
	}
	figures := make([][]float64, len(carriers))
	ratios := make([][]float64, len(carriers))
	for round := 0; b.Loop(); round++ {
		for k := range carriers {
			i := k
			if round%2 == 1 {
				i = len(carriers) - 1 - k
			}
			figures[i] = append(figures[i], value(float64(timed(i, ops[i]))/float64(ops[i])))
		}
		for i := range carriers {
			r := figures[0][round] / figures[i][round]
			if higher {
				r = 1 / r
			}
			ratios[i] = append(ratios[i], r)
		}
	}
	b.ReportMetric(0, "ns/op") // of no meaning
	for i, c := range carriers {
		b.ReportMetric(median(figures[i]), c.name+"-"+unit)
		if i > 0 {
			b.ReportMetric(median(ratios[i]), c.name+"-x")
		}
	}
}

func median(v []float64) float64 {
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
