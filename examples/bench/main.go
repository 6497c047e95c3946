// Bench measures sannet against TCP over loopback, unix sockets, net.Pipe and the same with a buffer, in one run, in turns.
//
//	go -C examples/bench run .                      everything, in one process and across two, in about four minutes
//	go -C examples/bench run . -quick               the same in a few seconds, for a first look
//	go -C examples/bench run . -procs 2 -run ^http  what matches, across two processes
//	go -C examples/bench run . -list                the names that -run chooses from
//	go -C examples/bench run . -json out.json -plot plots
//
// It is a module of its own, so that the library's does not need what draws the plots. Run that way, names of files are
// relative to its directory.
//
// How cost grows with what there is more and more of:
//
//	go -C examples/bench run . -run ^active -conns 1,8,64,512,4096,10000
//	go -C examples/bench run . -run ^roundtrip -sizes 1,64,1KiB,16KiB,256KiB,4MiB,64MiB
//	go -C examples/bench run . -run ^writers -writers 1,2,8,64
//	go -C examples/bench run . -run ^idle -idle 1,10,100,1000,10000
//
// The tables of docs/performance.md are below the commands that make them. All are made anew, or one of them, with
//
//	go -C examples/bench run . -doc ../../docs/performance.md
//	go -C examples/bench run . -procs 1 -rounds 7 -time 60ms -doc ../../docs/performance.md
//
// Against another host, as with iperf or qperf:
//
//	host1$ bench -serve :7700
//	host2$ bench -to host1:7700
//
// Every round measures every cell, that is every workload over every carrier, once. The carriers of a workload
// follow one another, and every other round goes backwards, so that what disturbs the machine disturbs all alike. A
// figure is the median over the rounds; a ratio to TCP is the median of the ratios within the rounds, and above 1 where
// the carrier is better, be it faster or cheaper.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"
)

func main() {
	if e, ok := os.LookupEnv(errandEnv); ok {
		exitOn(doErrand(e))
		return
	}
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, errHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		fmt.Fprintln(os.Stderr, "bench -h lists the flags")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exitOn(run(ctx, o, os.Stdout, os.Stderr))
}

var errInterrupted = errors.New("interrupted")

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run does what the flags ask for.
func run(ctx context.Context, o options, stdout, stderr io.Writer) error {
	switch {
	case o.list:
		for _, w := range o.workloads() {
			fmt.Fprintf(stdout, "%-18s %s\n", w.name, w.about)
		}
		return nil
	case o.remake:
		return remake(ctx, o.doc, stdout, stderr)
	case o.serve != "":
		return runServer(ctx, o.serve, stdout)
	}

	// What would fail in the end shall fail now.
	out, err := openOutputs(o)
	if err != nil {
		return err
	}
	defer out.close()
	rigs, err := openRigs(ctx, o)
	defer func() {
		for _, r := range rigs {
			r.stop()
		}
	}()
	if ctx.Err() != nil {
		err = errInterrupted
	}
	if err != nil {
		return err
	}
	cells, missing, err := cellsOf(o, rigs, descriptorLimit())
	if err != nil {
		return err
	}
	if o.cpuprofile != "" {
		f, err := os.Create(o.cpuprofile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	rounds, err := runRounds(ctx, o, cells, newProgress(stderr, len(cells)*o.rounds))
	if rounds == 0 {
		return err
	}
	if err != nil {
		err = fmt.Errorf("%w (the figures are those of %d complete rounds)", err, rounds)
	}
	return errors.Join(out.write(newReport(o, rigs, cells, missing, rounds), stdout), err)
}

// openRigs returns the rigs that the flags name, also in case of an error.
func openRigs(ctx context.Context, o options) (rigs []*rig, err error) {
	open := func(r *rig, e error) {
		if r != nil {
			rigs = append(rigs, r)
		}
		err = errors.Join(err, e)
	}
	if o.to != "" {
		open(remoteRig(ctx, o.to, o.network))
		return rigs, err
	}
	for _, procs := range o.procs {
		if procs == 1 {
			open(oneProcess(ctx, o.network))
		} else {
			open(twoProcesses(ctx, o.network))
		}
	}
	return rigs, err
}
