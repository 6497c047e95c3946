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
			count: conns,
			conns: conns,
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
	a, err := t.activity(conns)
	if err != nil {
		return nil, err
	}
	defer a.close()
	o, err := a.measure(t)
	return []float64{o.opsPerSecond(), o.cpuPerOp()}, err
}

// activity is connections on which round trips are made at a time.
type activity []*echo

func (t *trial) activity(conns int) (activity, error) {
	a := make(activity, 0, conns)
	for i := range conns {
		e, err := t.echo(64)
		if err != nil {
			a.close()
			return nil, fmt.Errorf("connection %d of %d: %w", i+1, conns, err)
		}
		a = append(a, e)
	}
	return a, nil
}

// turns is how many round trips a connection makes at least: what it takes to start the goroutines is shared by so many.
const turns = 4

// measure counts round trips.
func (a activity) measure(t *trial) (outcome, error) {
	each := turns * len(a)
	o, err := t.measure(func(n int) error {
		return spread(len(a), n*each, func(i int) error { return a[i].roundTrip() })
	})
	o.n *= each
	return o, err
}

func (a activity) close() {
	for _, e := range a {
		reset(e.Conn)
	}
}
