package main

import (
	"context"
	"fmt"
	"math"
	"net"
	"slices"
	"time"
)

// idles is what connections cost on which nothing happens. The server waits in Read on each.
func idles(o options) (ws []workload) {
	for _, conns := range o.idle {
		ws = append(ws, workload{
			name: fmt.Sprintf("idle/%d", conns),
			about: fmt.Sprintf("resident memory (not the kernel's), descriptors and goroutines, both ends, per connection of %d idle ones; "+
				"and the CPU time of all", conns),
			count: conns,
			conns: 1 + conns,
			metrics: []metric{
				{"rss", bytesPerConn, false},
				{"descriptors", perConn, false},
				{"goroutines", perConn, false},
				{"cpu", cpuPerSecond, false},
			},
			run: func(t *trial) ([]float64, error) { return idle(t, conns, o.network) },
		})
	}
	return ws
}

// idle measures in processes of its own: in one that had connections before, new ones take memory that is there
// already. A remote server cannot be started anew.
func idle(t *trial, conns int, network string) ([]float64, error) {
	var cost idleCost
	var err error
	if t.rig.mode == modeRemote {
		cost, err = t.idleCost(conns)
	} else {
		err = runErrand(t.ctx, errand{Idle: &idleErrand{t.rig.mode, network, t.carrier.name, conns, t.time}}, &cost)
		t.paths = cost.Paths
	}
	if err != nil {
		return nil, err
	}
	return cost.values(conns), nil
}

// idleErrand is to measure idle connections.
type idleErrand struct {
	Mode    string
	Network string
	Carrier string
	Conns   int
	Time    time.Duration
}

func (e idleErrand) run(ctx context.Context) (idleCost, error) {
	open := map[string]func(context.Context, string) (*rig, error){modeOne: oneProcess, modeTwo: twoProcesses}[e.Mode]
	r, err := open(ctx, e.Network)
	if err != nil {
		return idleCost{}, err
	}
	defer r.stop()
	i := slices.IndexFunc(r.carriers, func(c carrier) bool { return c.name == e.Carrier })
	return newTrial(ctx, r, r.carriers[i], e.Time).idleCost(e.Conns)
}

// idleCost is what was measured of idle connections.
type idleCost struct {
	Without, With usage         // of both ends
	CPU           time.Duration // that both ends used
	During        time.Duration // of this time
	Paths         map[string]int
}

func (t *trial) idleCost(conns int) (cost idleCost, err error) {
	open := make([]net.Conn, 0, 1+conns)
	defer func() {
		for _, c := range open {
			reset(c)
		}
	}()
	connect := func(n int) error {
		for i := range n {
			c, err := t.connectOnce()
			if err != nil {
				return fmt.Errorf("connection %d of %d: %w", i+1, n, err)
			}
			c.SetDeadline(time.Time{}) // and no timer
			open = append(open, c)
		}
		return nil
	}
	// The first connection pays for what all have in common.
	if err := connect(1); err != nil {
		return cost, err
	}
	if cost.Without, err = t.rig.usage(askAll); err != nil {
		return cost, err
	}
	if err := connect(conns); err != nil {
		return cost, err
	}
	if cost.With, err = t.rig.usage(askAll); err != nil {
		return cost, err
	}
	cost.Paths = t.paths

	// What connecting, and measuring memory, left to do in the background ends before the time counts. The
	// question for the CPU time takes some, too.
	if err := sleep(t.ctx, t.time); err != nil {
		return cost, err
	}
	var cpu [3]time.Duration
	for i := range cpu {
		if i == 2 {
			start := time.Now()
			if err := sleep(t.ctx, 3*t.time); err != nil {
				return cost, err
			}
			cost.During = time.Since(start)
		}
		if cpu[i], err = t.rig.cpu(); err != nil {
			return cost, err
		}
	}
	asking := cpu[1] - cpu[0]
	cost.CPU = max(0, cpu[2]-cpu[1]-asking)
	return cost, nil
}

// values are the figures in the order of the metrics, NaN for what is not known on this system.
func (c idleCost) values(conns int) []float64 {
	each := func(with, without int64) float64 {
		if with < 0 || without < 0 {
			return math.NaN()
		}
		return float64(with-without) / float64(conns)
	}
	return []float64{
		each(c.With.RSS, c.Without.RSS),
		each(c.With.Descriptors, c.Without.Descriptors),
		each(c.With.Goroutines, c.Without.Goroutines),
		float64(c.CPU) / c.During.Seconds(),
	}
}

// sleep fails when ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
