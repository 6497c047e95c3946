package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync/atomic"
)

const cacheLine = 64

// streams are writes in one direction, with a reader that keeps up.
func streams(o options) (ws []workload) {
	sizes := o.sizes
	if sizes == nil {
		sizes = []int{64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20, 16 << 20}
	}
	about := "bytes per second in one direction, by writes of the size"
	if o.touch {
		about += ", each cache line written before and read after"
	}
	for _, size := range sizes {
		ws = append(ws, workload{
			name:  "stream/" + sizeName(size),
			about: about,
			size:  size,
			metrics: []metric{
				{"rate", bytesPerSecond, true},
				{"cpu", cpuPerByte, false},
			},
			run: func(t *trial) ([]float64, error) { return stream(t, size, o.touch) },
		})
	}
	return ws
}

// stream writes batches: their length in 8 bytes, then the data. The batch is over when the reader says how much
// came, so that nothing on its way is counted.
func stream(t *trial, size int, touch bool) ([]float64, error) {
	j := jobStream
	if touch {
		j = jobStreamTouch
	}
	c, err := t.connect(j, size)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	buf := make([]byte, size)
	for i := range buf {
		buf[i] = byte(i)
	}
	length := make([]byte, 8)
	o, err := t.measure(func(n int) error {
		total := uint64(n) * uint64(size)
		binary.LittleEndian.PutUint64(length, total)
		if _, err := c.Write(length); err != nil {
			return err
		}
		for range n {
			if touch {
				for i := 0; i < len(buf); i += cacheLine {
					buf[i]++
				}
			}
			if _, err := c.Write(buf); err != nil {
				return err
			}
		}
		return readTotal(c, total)
	})
	if err != nil {
		return nil, err
	}
	return []float64{o.opsPerSecond() * float64(size), o.cpuPerOp() / float64(size)}, nil
}

// readTotal waits until the reader says how much came.
func readTotal(c net.Conn, want uint64) error {
	length := make([]byte, 8)
	if _, err := io.ReadFull(c, length); err != nil {
		return err
	}
	if got := binary.LittleEndian.Uint64(length); got != want {
		return fmt.Errorf("%d bytes were sent, %d came", want, got)
	}
	return nil
}

// sums is where the reader leaves what it made of the data, lest the compiler leave out the reading.
var sums atomic.Uint64

// serveStream reads batches.
func serveStream(c net.Conn, buf []byte, touch bool) {
	length := make([]byte, 8)
	for {
		if _, err := io.ReadFull(c, length); err != nil {
			return
		}
		var got, sum uint64
		for want := binary.LittleEndian.Uint64(length); got < want; {
			n, err := c.Read(buf)
			if touch {
				for i := 0; i < n; i += cacheLine {
					sum += uint64(buf[i])
				}
			}
			got += uint64(n)
			if err != nil {
				return
			}
		}
		sums.Add(sum)
		binary.LittleEndian.PutUint64(length, got)
		if _, err := c.Write(length); err != nil {
			return
		}
	}
}
