package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

const (
	maxReaders = 1024
	readSize   = 64 << 10
)

// writers are many goroutines that write on one connection, and as many that read from it at the other end.
func writers(o options) (ws []workload) {
	for _, size := range []int{64, 64 << 10} {
		for _, n := range o.writers {
			ws = append(ws, workload{
				name: fmt.Sprintf("writers/%s/%d", sizeName(size), n),
				about: fmt.Sprintf("bytes per second in one direction, by writes of the size, of %d goroutines on one connection with %d readers",
					n, n),
				size:  size,
				count: n,
				metrics: []metric{
					{"rate", bytesPerSecond, true},
					{"cpu", cpuPerByte, false},
				},
				run: func(t *trial) ([]float64, error) { return writeTogether(t, size, n) },
			})
		}
	}
	return ws
}

// writeTogether writes batches, as stream does.
func writeTogether(t *trial, size, goroutines int) ([]float64, error) {
	c, err := t.connect(jobReaders, goroutines)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	buf := make([]byte, size)
	length := make([]byte, 8)
	o, err := t.measure(func(n int) error {
		total := uint64(n) * uint64(size)
		binary.LittleEndian.PutUint64(length, total)
		if _, err := c.Write(length); err != nil {
			return err
		}
		if err := spread(goroutines, n, func(int) error { _, err := c.Write(buf); return err }); err != nil {
			return err
		}
		return readTotal(c, total)
	})
	return []float64{o.opsPerSecond() * float64(size), o.cpuPerOp() / float64(size)}, err
}

// serveReaders reads batches with many goroutines. Each claims some of the bytes that are left before it waits for as
// many, whichever they are: so none waits for more than there will be.
func serveReaders(c net.Conn, goroutines int, buf []byte) {
	length := make([]byte, 8)
	for {
		if _, err := io.ReadFull(c, length); err != nil {
			return
		}
		var left, got atomic.Int64
		var wg sync.WaitGroup
		left.Store(max(0, int64(binary.LittleEndian.Uint64(length))))
		for i := range goroutines {
			p := buf[i*readSize : (i+1)*readSize]
			wg.Go(func() {
				for {
					claim := min(readSize, left.Add(-readSize)+readSize)
					if claim <= 0 {
						return
					}
					n, err := io.ReadFull(c, p[:claim])
					got.Add(int64(n))
					if err != nil {
						return
					}
				}
			})
		}
		wg.Wait()
		binary.LittleEndian.PutUint64(length, uint64(got.Load()))
		if _, err := c.Write(length); err != nil {
			return
		}
	}
}
