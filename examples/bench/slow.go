package main

import (
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

const (
	slowRead  = 64 << 10             // what a slow reader takes
	slowPause = 2 * time.Millisecond // and how long it then waits
)

// slows are round trips over many connections, beside one more whose writer, the server, always has more to write than is
// read.
func slows(o options) (ws []workload) {
	for _, conns := range o.conns {
		for _, kind := range []struct {
			name, reader string
			read         func(net.Conn)
		}{
			{"slow", fmt.Sprintf("reader takes %s every %v", sizeName(slowRead), slowPause), readSlowly},
			{"stuck", "reader never reads", func(net.Conn) {}},
		} {
			ws = append(ws, workload{
				name: fmt.Sprintf("%s/%d", kind.name, conns),
				about: fmt.Sprintf("as active/%d beside one more connection with a writer at work, whose %s; alone without it, and what was kept",
					conns, kind.reader),
				count: conns,
				conns: 1 + conns,
				metrics: []metric{
					{"rate", opsPerSecond, true},
					{"alone", opsPerSecond, true},
					{"kept", share, true},
				},
				run: func(t *trial) ([]float64, error) { return besideSlow(t, conns, kind.read) },
			})
		}
	}
	return ws
}

// besideSlow measures the others first alone.
func besideSlow(t *trial, conns int, read func(net.Conn)) ([]float64, error) {
	a, err := t.activity(conns)
	if err != nil {
		return nil, err
	}
	defer a.close()
	alone, err := a.measure(t)
	if err != nil {
		return nil, err
	}
	c, err := t.connect(jobSource, slowRead)
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	wg.Go(func() { read(c) })
	beside, err := a.measure(t)
	c.Close()
	wg.Wait()
	return []float64{beside.opsPerSecond(), alone.opsPerSecond(), beside.opsPerSecond() / alone.opsPerSecond()}, err
}

// readSlowly ends when the connection does.
func readSlowly(c net.Conn) {
	buf := make([]byte, slowRead)
	for {
		if _, err := io.ReadFull(c, buf); err != nil {
			return
		}
		time.Sleep(slowPause)
	}
}

// serveSource writes for as long as the client lets it.
func serveSource(c net.Conn, buf []byte) {
	for {
		if _, err := c.Write(buf); err != nil {
			return
		}
	}
}
