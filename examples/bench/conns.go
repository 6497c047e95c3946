package main

import (
	"fmt"
	"net"
)

// setUps is connections one after the other.
func setUps() []workload {
	return []workload{{
		name:  "setup",
		about: "connections per second, one after the other: dialed, accepted, one round trip, closed",
		metrics: []metric{
			{"rate", opsPerSecond, true},
			{"cpu", cpuPerOp, false},
		},
		run: func(t *trial) ([]float64, error) {
			o, err := t.measure(func(n int) error {
				for range n {
					c, err := t.connectOnce()
					if err != nil {
						return err
					}
					reset(c)
				}
				return nil
			})
			return []float64{o.opsPerSecond(), o.cpuPerOp()}, err
		},
	}}
}

// connectOnce is connect for connections of which there are very many: what the trial would hold until its end,
// to close them, are bounds on the dialing and the greeting here.
func (t *trial) connectOnce() (net.Conn, error) {
	c, err := t.carrier.dial(t.ctx)
	if err != nil {
		return nil, err
	}
	t.count(c)
	deadline, _ := t.ctx.Deadline()
	c.SetDeadline(deadline)
	if err := greet(c, jobOpen, 0); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// reset closes c so that no TCP port stays in TIME-WAIT: there are fewer of them than a benchmark opens.
func reset(c net.Conn) {
	if l, ok := c.(interface{ SetLinger(int) error }); ok {
		l.SetLinger(0)
	}
	c.Close()
}

// actives are round trips over many connections at a time.
func actives(o options) (ws []workload) {
	for _, conns := range o.conns {
		ws = append(ws, workload{
			name:  fmt.Sprintf("active/%d", conns),
			about: fmt.Sprintf("round trips of 64 bytes per second in total, over %d connections at a time", conns),
			metrics: []metric{
				{"rate", opsPerSecond, true},
				{"cpu", cpuPerOp, false},
			},
			run: func(t *trial) ([]float64, error) { return active(t, conns) },
		})
	}
	return ws
}

func active(t *trial, conns int) ([]float64, error) {
	echoes := make([]*echo, conns)
	for i := range echoes {
		e, err := t.echo(64)
		if err != nil {
			return nil, fmt.Errorf("connection %d of %d: %w", i+1, conns, err)
		}
		defer e.Close()
		echoes[i] = e
	}
	o, err := t.measure(func(n int) error {
		return spread(conns, n, func(i int) error { return echoes[i].roundTrip() })
	})
	return []float64{o.opsPerSecond(), o.cpuPerOp()}, err
}
