package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// options are the flags.
type options struct {
	run        *regexp.Regexp
	over       []string
	procs      []int
	network    string // of sannet
	rounds     int
	time       time.Duration
	sizes      []int // nil: those of each workload
	conns      []int
	writers    []int
	idle       []int
	touch      bool
	quick      bool
	list       bool
	json       string
	plot       string
	doc        string
	command    string // the flags but for doc
	remake     bool   // every table of doc
	cpuprofile string
	serve      string
	to         string
}

const (
	maxRounds = 1000
	maxTime   = time.Minute
	maxConns  = 100_000
)

// carrierNames are the names of all carriers, in the order of tables.
var carrierNames = []string{"tcp", "unix", "pipe", "buffered", "sannet"}

// errHelp says that the flags were printed, as asked for.
var errHelp = flag.ErrHelp

// parse reads the flags. Usage goes to stderr only if it is asked for.
func parse(args []string, stderr io.Writer) (options, error) {
	o := options{
		over:    carrierNames,
		procs:   []int{1, 2},
		network: "tcp",
		rounds:  5,
		time:    80 * time.Millisecond,
		conns:   []int{64},
		writers: []int{8},
		idle:    []int{1000},
		plot:    "bench.out",
	}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Func("run", "measure only workloads whose name matches the `regexp`, see -list", func(s string) (err error) {
		o.run, err = regexp.Compile(s)
		return err
	})
	fs.Func("over", "`carriers` to measure: tcp,unix,pipe,buffered,sannet; tcp is always among them (default all)",
		func(s string) (err error) { o.over, err = parseCarriers(s); return err })
	fs.Func("procs", "`number` of processes: 1, 2 or 1,2 (default 1,2)", func(s string) (err error) {
		o.procs, err = parseInts(s, 1, 2)
		return err
	})
	fs.StringVar(&o.network, "net", o.network, "`network` that sannet dials: tcp takes the SAN where it can, san takes it or fails")
	fs.IntVar(&o.rounds, "rounds", o.rounds, "`number` of rounds, of which figures are the medians")
	fs.DurationVar(&o.time, "time", o.time, "`duration` of each cell in each round, warming up not counted")
	fs.Func("sizes", "message `sizes` of round trips and streams, such as 64,4KiB,1MiB (default a list for each)",
		func(s string) (err error) { o.sizes, err = parseSizes(s); return err })
	fs.Func("conns", "`numbers` of connections that are active at a time, such as 1,8,64 (default 64)",
		func(s string) (err error) { o.conns, err = parseInts(s, 1, maxConns); return err })
	fs.Func("writers", "`numbers` of goroutines that write, and of as many that read, on one connection (default 8)",
		func(s string) (err error) { o.writers, err = parseInts(s, 1, maxReaders); return err })
	fs.Func("idle", "`numbers` of idle connections, such as 1,100,10000 (default 1000)",
		func(s string) (err error) { o.idle, err = parseInts(s, 1, maxConns); return err })
	fs.BoolVar(&o.touch, "touch", false,
		"streams: the writer changes, and the reader reads, a word of every cache line, as applications would")
	fs.BoolVar(&o.quick, "quick", false, "short: what -rounds, -time and -idle do not say is 2, 4ms and 100")
	fs.BoolVar(&o.list, "list", false, "list the workloads and exit")
	fs.StringVar(&o.json, "json", "", "write everything to `file` as JSON")
	fs.StringVar(&o.plot, "plot", o.plot, "write plots as SVG and PNG to `directory`; empty for none")
	fs.StringVar(&o.doc, "doc", "", "put the table into `file` in Markdown, in place of that below the line with this command; "+
		"with no other flag, do so for every such line")
	fs.StringVar(&o.cpuprofile, "cpuprofile", "", "write a CPU profile, of this process alone, to `file`")
	fs.StringVar(&o.serve, "serve", "", "be the server for -to at `address`, until interrupted; do so on networks you trust")
	fs.StringVar(&o.to, "to", "", "measure against the server at `host:port`, over TCP and sannet")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, errHelp) {
			fmt.Fprintln(stderr, "Usage of bench:")
			fs.SetOutput(stderr)
			fs.PrintDefaults()
		}
		return o, err
	}
	set := make(map[string]bool)
	fs.Visit(func(f *flag.Flag) { set[f.Name] = true })
	if o.quick {
		for name, use := range map[string]func(){
			"rounds": func() { o.rounds = 2 },
			"time":   func() { o.time = 4 * time.Millisecond },
			"idle":   func() { o.idle = []int{100} },
		} {
			if !set[name] {
				use()
			}
		}
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	o.command = strings.Join(withoutDoc(args), " ")
	o.remake = set["doc"] && len(set) == 1
	return o, o.check(set)
}

// check reports what is wrong with the values of the flags, and which do not go together.
func (o options) check(set map[string]bool) error {
	switch {
	case o.rounds < 1 || o.rounds > maxRounds:
		return fmt.Errorf("-rounds must be from 1 to %d, not %d", maxRounds, o.rounds)
	case o.time < time.Millisecond || o.time > maxTime:
		return fmt.Errorf("-time must be from 1ms to %v, not %v", maxTime, o.time)
	case o.network != "tcp" && o.network != "san":
		return fmt.Errorf("-net must be tcp or san, not %q", o.network)
	case o.serve != "" && len(set) > 1:
		return errors.New("-serve goes with no other flag: the side with -to says what is measured")
	case set["over"] && o.to != "" && o.overAny("unix", "pipe", "buffered"):
		return errors.New("-over unix, pipe and buffered do not go with -to: they do not leave a host")
	case set["over"] && o.to == "" && o.overAny("pipe", "buffered") && !slices.Contains(o.procs, 1):
		return errors.New("-over pipe and buffered need -procs 1: they do not leave a process")
	case o.to != "" && set["procs"]:
		return errors.New("-procs does not go with -to: the other process is the one at -to")
	}
	if set["serve"] {
		if _, _, err := net.SplitHostPort(o.serve); err != nil {
			return fmt.Errorf("-serve: %w", err)
		}
	}
	if set["to"] {
		host, port, err := net.SplitHostPort(o.to)
		if err != nil {
			return fmt.Errorf("-to: %w", err)
		}
		if host == "" || port == "" || port == "0" {
			return fmt.Errorf("-to needs the server's host and port, not %q", o.to)
		}
	}
	return nil
}

// overAny reports whether any of the carriers is to be measured.
func (o options) overAny(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(o.over, name) })
}

// workloads returns the workloads that the flags choose.
func (o options) workloads() (ws []workload) {
	for _, w := range slices.Concat(roundTrips(o), streams(o), setUps(), https(), writers(o), actives(o), slows(o), idles(o)) {
		if o.run == nil || o.run.MatchString(w.name) {
			ws = append(ws, w)
		}
	}
	return ws
}

// parseInts reads a list of distinct numbers within bounds.
func parseInts(s string, lo, hi int) (list []int, err error) {
	for f := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(f))
		if err != nil || n < lo || n > hi {
			return nil, fmt.Errorf("%q is no number from %d to %d", f, lo, hi)
		}
		if !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	return list, nil
}

// parseCarriers reads a list of carriers, and returns it in the order of tables.
func parseCarriers(s string) (list []string, err error) {
	names := strings.Split(s, ",")
	for i, name := range names {
		names[i] = strings.TrimSpace(name)
		if !slices.Contains(carrierNames, names[i]) {
			return nil, fmt.Errorf("no carrier %q, there are %s", names[i], strings.Join(carrierNames, ", "))
		}
	}
	for _, name := range carrierNames {
		if name == "tcp" || slices.Contains(names, name) {
			list = append(list, name)
		}
	}
	return list, nil
}

// parseSizes reads a list of distinct sizes in bytes, KiB (also K, k) or MiB (M, m).
func parseSizes(s string) (list []int, err error) {
	for f := range strings.SplitSeq(s, ",") {
		f = strings.TrimSpace(f)
		digits := strings.TrimRight(f, "KkMmiIbB")
		shift, ok := map[string]int{"": 0, "b": 0, "k": 10, "kib": 10, "m": 20, "mib": 20}[strings.ToLower(f[len(digits):])]
		n, err := strconv.Atoi(digits)
		if err != nil || !ok || n < 1 || n > maxSize>>shift {
			return nil, fmt.Errorf("%q is no size from 1 to %s, such as 64, 4KiB or 1MiB", f, sizeName(maxSize))
		}
		if n <<= shift; !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	return list, nil
}

// sizeName is the short form of a number of bytes.
func sizeName(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%dMiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%dKiB", n>>10)
	}
	return fmt.Sprintf("%dB", n)
}
