package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"
)

// pause is how long nothing happens before a sporadic request.
const pause = 500 * time.Microsecond

var roundTripMetrics = []metric{
	{"time", nsPerOp, false},
	{"cpu", cpuPerOp, false},
}

// roundTrips are messages of which the next is sent when the last came back.
func roundTrips(o options) (ws []workload) {
	sizes := o.sizes
	if sizes == nil {
		sizes = []int{1, 64, 1 << 10, 4 << 10, 64 << 10, 1 << 20}
	}
	for _, size := range sizes {
		ws = append(ws, workload{
			name:    "roundtrip/" + sizeName(size),
			about:   "time until a message is back",
			size:    size,
			metrics: roundTripMetrics,
			run:     func(t *trial) ([]float64, error) { return roundTrip(t, size) },
		})
	}
	return append(ws, workload{
		name:    "sporadic/64B",
		about:   fmt.Sprintf("time until a message is back, each sent after a pause of %v", pause),
		size:    64,
		metrics: roundTripMetrics,
		run:     sporadic,
	}, workload{
		name: "burst/64B",
		about: fmt.Sprintf("time until %d messages are back together, written one after the other after a pause of %v, while another goroutine reads",
			burstWrites, pause),
		size:    64,
		metrics: roundTripMetrics,
		run:     burst,
	})
}

const burstWrites = 100

// echo is a connection whose server sends everything back.
type echo struct {
	net.Conn
	sent, got []byte
}

// echo connects, and sees that what comes back is what was sent.
func (t *trial) echo(size int) (*echo, error) {
	c, err := t.connect(jobEcho, size)
	if err != nil {
		return nil, err
	}
	e := &echo{c, make([]byte, size), make([]byte, size)}
	random := rand.NewChaCha8([32]byte{byte(size)})
	random.Read(e.sent)
	if err := e.roundTrip(); err != nil {
		c.Close()
		return nil, err
	}
	if !bytes.Equal(e.sent, e.got) {
		c.Close()
		return nil, errors.New("what came back is not what was sent")
	}
	return e, nil
}

func (e *echo) roundTrip() error {
	if _, err := e.Write(e.sent); err != nil {
		return err
	}
	_, err := io.ReadFull(e, e.got)
	return err
}

func roundTrip(t *trial, size int) ([]float64, error) {
	e, err := t.echo(size)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	o, err := t.measure(func(n int) error {
		for range n {
			if err := e.roundTrip(); err != nil {
				return err
			}
		}
		return nil
	})
	return []float64{o.nsPerOp(), o.cpuPerOp()}, err
}

// sporadic measures every round trip by itself, and returns the median. What the pauses cost is part of the CPU time.
func sporadic(t *trial) ([]float64, error) {
	e, err := t.echo(64)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	var times []float64
	o, err := t.measure(func(n int) error {
		times = times[:0]
		for range n {
			time.Sleep(pause)
			start := time.Now()
			if err := e.roundTrip(); err != nil {
				return err
			}
			times = append(times, float64(time.Since(start)))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return []float64{summarize(times).Median, o.cpuPerOp()}, nil
}

// burst measures how long the last of some small writes takes to arrive, after which the writer does nothing more, and returns the
// median.
func burst(t *trial) ([]float64, error) {
	const size = 64
	e, err := t.echo(burstWrites * size)
	if err != nil {
		return nil, err
	}
	back := make(chan error, 1)
	go func() {
		for {
			_, err := io.ReadFull(e, e.got)
			if back <- err; err != nil {
				return
			}
		}
	}()
	var times []float64
	o, err := t.measure(func(n int) error {
		times = times[:0]
		for range n {
			time.Sleep(pause)
			start := time.Now()
			for p := e.sent; len(p) > 0; p = p[size:] {
				if _, err := e.Write(p[:size]); err != nil {
					return err
				}
			}
			if err := <-back; err != nil {
				return err
			}
			times = append(times, float64(time.Since(start)))
		}
		return nil
	})
	e.Close()
	if err != nil {
		return nil, err
	}
	<-back // the reader has ended
	return []float64{summarize(times).Median, o.cpuPerOp()}, nil
}

// serveEcho sends every message back, when all of it is there.
func serveEcho(c net.Conn, buf []byte) {
	for {
		if _, err := io.ReadFull(c, buf); err != nil {
			return
		}
		if _, err := c.Write(buf); err != nil {
			return
		}
	}
}
