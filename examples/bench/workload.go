package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// metric is a figure that a workload has.
type metric struct {
	name   string
	unit   unit
	higher bool // whether more is better
}

// workload is something to measure over every carrier.
type workload struct {
	name    string
	about   string
	size    int      // of a message or body in bytes, if it has one
	count   int      // of what there is more and more of, connections or goroutines, if it is about that
	conns   int      // that are open at a time, if they are many
	metrics []metric // the first is the one that matters most
	run     func(*trial) ([]float64, error)
}

// family is the first part of the name.
func family(name string) string {
	for i, r := range name {
		if r == '/' {
			return name[:i]
		}
	}
	return name
}

// Where the server of a rig is.
const (
	modeOne    = "procs1" // in this process
	modeTwo    = "procs2" // in another one on this host
	modeRemote = "remote" // wherever -to says
)

// rig is a server to measure against, and the ways to reach it.
type rig struct {
	mode     string
	title    string
	carriers []carrier
	local    *server  // if it is in this process
	peer     *control // if it is in another
	stop     func()
}

// cpu returns the CPU time that both sides have used until now.
func (r *rig) cpu() (time.Duration, error) {
	u, err := r.usage(askCPU)
	return u.CPU, err
}

// usage returns what both sides use.
func (r *rig) usage(a ask) (usage, error) {
	u := ownUsage(a)
	if r.peer == nil {
		return u, nil
	}
	p, err := r.peer.usage(a)
	return u.add(p), err
}

// settle waits for the server to be done with earlier connections.
func (r *rig) settle() error {
	if r.local != nil {
		r.local.settle()
		return nil
	}
	_, err := r.peer.usage(askSettle)
	return err
}

// cell is a workload over a carrier, with what was measured.
type cell struct {
	rig     *rig
	load    workload
	carrier carrier
	paths   map[string]int // how many connections took which path
	rounds  [][]float64    // by round, by metric
}

const (
	maxDescriptors = 1 << 30
	// ownDescriptors is more than what a process has open besides the connections that are measured.
	ownDescriptors = 100
)

// lacks says why a workload cannot be measured over a carrier, if that is so.
func (r *rig) lacks(w workload, c carrier, limit int) string {
	ends := 1
	if r.mode == modeOne {
		ends = 2
	}
	if need := ends * c.descriptors() * w.conns; w.conns > 0 && need > limit-ownDescriptors {
		return fmt.Sprintf("%s over %s, %s, was not measured: it takes %d descriptors in a process, and the limit is %d",
			w.name, c.name, r.title, need, limit)
	}
	return ""
}

// cellsOf returns all cells, those of one workload next to each other, and why others are left out.
func cellsOf(o options, rigs []*rig, limit int) (cells []*cell, missing []string, err error) {
	ws := o.workloads()
	if len(ws) == 0 {
		return nil, nil, fmt.Errorf("-run %q matches none of the workloads, see -list", o.run)
	}
	for _, r := range rigs {
		for _, w := range ws {
			for _, name := range o.over {
				i := slices.IndexFunc(r.carriers, func(c carrier) bool { return c.name == name })
				if i < 0 {
					continue
				}
				if why := r.lacks(w, r.carriers[i], limit); why != "" {
					missing = append(missing, why)
					continue
				}
				cells = append(cells, &cell{rig: r, load: w, carrier: r.carriers[i], paths: make(map[string]int)})
			}
		}
	}
	return cells, missing, nil
}

// patience is how long a cell may take in excess of what it should.
const patience = 30 * time.Second

// errStuck is the cause of the end of cells that take too long.
var errStuck = errors.New("stuck: no end after the time it should take and 30s more")

// runRounds measures all cells in every round, and returns the number of complete rounds.
func runRounds(ctx context.Context, o options, cells []*cell, p *progress) (int, error) {
	defer p.end()
	order := slices.Clone(cells)
	for round := range o.rounds {
		for _, c := range order {
			p.step(c)
			if err := c.run(ctx, o.time); err != nil {
				if ctx.Err() != nil {
					err = errInterrupted
				} else {
					err = fmt.Errorf("%s over %s, %s: %w", c.load.name, c.carrier.name, c.rig.title, err)
				}
				return round, err
			}
		}
		slices.Reverse(order)
	}
	return o.rounds, nil
}

// run measures the cell once more.
func (c *cell) run(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 20*d+patience, errStuck)
	defer cancel()
	runtime.GC() // not that of what was measured before
	t := newTrial(ctx, c.rig, c.carrier, d)
	values, err := c.load.run(t)
	if err == nil {
		err = c.rig.settle()
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	if err != nil {
		return err
	}
	for path, n := range t.paths {
		c.paths[path] += n
	}
	c.rounds = append(c.rounds, values)
	return nil
}

// trial is one measurement of a cell.
type trial struct {
	ctx     context.Context
	rig     *rig
	carrier carrier
	time    time.Duration

	mu    sync.Mutex // guards paths: HTTP clients connect when they like
	paths map[string]int
}

func newTrial(ctx context.Context, r *rig, c carrier, d time.Duration) *trial {
	return &trial{ctx: ctx, rig: r, carrier: c, time: d, paths: make(map[string]int)}
}

// connect returns a connection on which the server does the job. It is closed at the latest when the trial is over.
func (t *trial) connect(j job, size int) (net.Conn, error) {
	c, err := t.carrier.dial(t.ctx)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(t.ctx, func() { c.Close() })
	t.count(c)
	if err := greet(c, j, size); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// count counts a connection.
func (t *trial) count(c net.Conn) {
	path := pathOf(c)
	t.mu.Lock()
	t.paths[path]++
	t.mu.Unlock()
}

// outcome is what n operations took.
type outcome struct {
	n    int
	took time.Duration
	cpu  time.Duration // of both sides
}

func (o outcome) nsPerOp() float64  { return float64(o.took) / float64(o.n) }
func (o outcome) cpuPerOp() float64 { return float64(o.cpu) / float64(o.n) }
func (o outcome) opsPerSecond() float64 {
	return float64(o.n) / max(o.took, 1).Seconds()
}

// measure calls f, which does n operations, with larger and larger n until that takes about the time of the
// trial. The calls before are the warming up, of which there is at least one. So f needs no clock.
func (t *trial) measure(f func(n int) error) (outcome, error) {
	for n, warm := 1, false; ; warm = true {
		before, err := t.rig.cpu()
		if err != nil {
			return outcome{}, err
		}
		start := time.Now()
		err = f(n)
		took := time.Since(start)
		if err != nil {
			return outcome{}, err
		}
		if warm && took >= t.time*3/4 {
			after, err := t.rig.cpu()
			return outcome{n, took, after - before}, err
		}
		if err := t.ctx.Err(); err != nil {
			return outcome{}, err
		}
		next := max(1, float64(n)*float64(t.time)/float64(max(took, 1)))
		if took < t.time*3/4 {
			next = max(next, float64(n+1))
		}
		n = int(min(next, float64(10*n)))
	}
}

// spread does n operations with so many clients, each of which does the next one when it is done with the last. Its
// error is the first.
func spread(clients, n int, do func(client int) error) error {
	var (
		left  atomic.Int64
		wg    sync.WaitGroup
		once  sync.Once
		first error
	)
	left.Store(int64(n))
	for i := range min(clients, n) {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := do(i); err != nil {
					once.Do(func() { first = err })
					left.Store(0)
					return
				}
			}
		})
	}
	wg.Wait()
	return first
}
