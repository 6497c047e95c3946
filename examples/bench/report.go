package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// report is all that was measured: tables, plots and JSON are made of it.
type report struct {
	Time       time.Time `json:"time"`
	Args       []string  `json:"args"`
	Go         string    `json:"go"`
	OS         string    `json:"os"`
	Arch       string    `json:"arch"`
	CPU        string    `json:"cpu,omitempty"`
	CPUs       int       `json:"cpus"`
	GOMAXPROCS int       `json:"gomaxprocs"`
	Rounds     int       `json:"rounds"`
	CellTime   string    `json:"cell_time"`
	Touch      bool      `json:"touch"`
	Modes      []mode    `json:"modes"`
	Missing    []string  `json:"missing,omitempty"` // what was not measured, and why
	Results    []result  `json:"results"`
}

// mode is where the server was.
type mode struct {
	Mode  string `json:"mode"`
	Title string `json:"title"`
}

// result is what was measured in a cell.
type result struct {
	Mode     string         `json:"mode"`
	Workload string         `json:"workload"`
	Carrier  string         `json:"carrier"`
	Size     int            `json:"size,omitempty"`
	Count    int            `json:"count,omitempty"`
	Paths    map[string]int `json:"paths"` // how many connections took which path
	Metrics  []figure       `json:"metrics"`
}

// figure is a metric that was measured.
type figure struct {
	Name    string    `json:"name"`
	Unit    unit      `json:"unit"`
	Better  string    `json:"better"` // higher or lower
	Samples []float64 `json:"samples"`
	summary
	Ratio *summary `json:"ratio_to_tcp"` // how many times better; null where that has no meaning
}

// newReport sums up the first rounds.
func newReport(o options, rigs []*rig, cells []*cell, missing []string, rounds int) *report {
	r := &report{
		Time: time.Now(), Args: os.Args[1:],
		Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH,
		CPU: cpuModel(), CPUs: runtime.NumCPU(), GOMAXPROCS: runtime.GOMAXPROCS(0),
		Rounds: rounds, CellTime: o.time.String(), Touch: o.touch, Missing: missing,
	}
	for _, rig := range rigs {
		r.Modes = append(r.Modes, mode{rig.mode, rig.title})
	}
	for _, c := range cells {
		res := result{
			Mode: c.rig.mode, Workload: c.load.name, Carrier: c.carrier.name,
			Size: c.load.size, Count: c.load.count, Paths: c.paths,
		}
		base := baseOf(c, cells)
		for i, m := range c.load.metrics {
			samples := c.column(i, rounds)
			if slices.ContainsFunc(samples, math.IsNaN) {
				continue // not known on this system
			}
			f := figure{Name: m.name, Unit: m.unit, Better: "lower", Samples: samples, summary: summarize(samples)}
			if m.higher {
				f.Better = "higher"
			}
			if base != nil {
				// A median of some of the rounds would say that all have one.
				if rs := ratios(base.column(i, rounds), samples, m.higher); len(rs) == rounds {
					s := summarize(rs)
					f.Ratio = &s
				}
			}
			res.Metrics = append(res.Metrics, f)
		}
		r.Results = append(r.Results, res)
	}
	return r
}

// column returns the values of a metric by round.
func (c *cell) column(metric, rounds int) []float64 {
	v := make([]float64, rounds)
	for i := range v {
		v[i] = c.rounds[i][metric]
	}
	return v
}

// baseOf returns the cell of TCP with the same workload, or nil if that was not measured.
func baseOf(c *cell, cells []*cell) *cell {
	i := slices.IndexFunc(cells, func(b *cell) bool {
		return b.carrier.name == "tcp" && b.rig == c.rig && b.load.name == c.load.name
	})
	if i < 0 {
		return nil
	}
	return cells[i]
}

// in returns the results of a mode.
func (r *report) in(mode string) (rs []result) {
	for _, res := range r.Results {
		if res.Mode == mode {
			rs = append(rs, res)
		}
	}
	return rs
}

// find returns a cell's figure.
func (r *report) find(mode, workload, carrier, metric string) (figure, bool) {
	for _, res := range r.in(mode) {
		if res.Workload == workload && res.Carrier == carrier {
			i := slices.IndexFunc(res.Metrics, func(f figure) bool { return f.Name == metric })
			if i >= 0 {
				return res.Metrics[i], true
			}
		}
	}
	return figure{}, false
}

// notes tells what was not measured, and which paths sannet took, above all where that was none over a SAN.
func (r *report) notes() (notes []string) {
	notes = append(notes, r.Missing...)
	for _, m := range r.Modes {
		var san, other int
		counts := make(map[string]int)
		for _, res := range r.carrier(m.Mode, "sannet") {
			for p, n := range res.Paths {
				counts[p] += n
				if strings.HasPrefix(p, "san ") {
					san += n
				} else {
					other += n
				}
			}
		}
		if len(counts) == 0 {
			continue
		}
		note := m.Title + ": sannet went over "
		for i, p := range slices.Sorted(maps.Keys(counts)) {
			if i > 0 {
				note += ", and "
			}
			note += p
			if len(counts) > 1 {
				note += fmt.Sprintf(" (%d of %d connections)", counts[p], san+other)
			}
		}
		switch {
		case san == 0:
			note += "; so its figures are those of TCP, as chosen by sannet"
		case other > 0:
			note += "; its figures are of both"
		}
		notes = append(notes, note)
	}
	return notes
}

// outputs are the files that a report goes to.
type outputs struct {
	json    *os.File
	plot    string
	doc     string
	command string
}

// openOutputs makes the files and directories that the flags name.
func openOutputs(o options) (*outputs, error) {
	out := &outputs{plot: o.plot, doc: o.doc, command: o.command}
	if o.doc != "" {
		if _, err := updateDoc(o.doc, o.command, ""); err != nil {
			return nil, err
		}
	}
	if o.plot != "" {
		if err := os.MkdirAll(o.plot, 0o777); err != nil {
			return nil, fmt.Errorf("-plot: %w", err)
		}
	}
	if o.json != "" {
		f, err := os.Create(o.json)
		if err != nil {
			return nil, fmt.Errorf("-json: %w", err)
		}
		out.json = f
	}
	return out, nil
}

func (out *outputs) write(r *report, stdout io.Writer) error {
	err := writeTable(stdout, r)
	if out.json != nil {
		enc := json.NewEncoder(out.json)
		enc.SetIndent("", "\t")
		err = errors.Join(err, enc.Encode(r))
	}
	if out.doc != "" {
		text, e := updateDoc(out.doc, out.command, r.markdown())
		if e == nil {
			e = os.WriteFile(out.doc, text, 0o666)
		}
		err = errors.Join(err, e)
	}
	if out.plot != "" {
		files, e := writePlots(out.plot, r)
		err = errors.Join(err, e)
		if len(files) > 0 {
			fmt.Fprintf(stdout, "\n%d plots in %s\n", len(files), out.plot)
		}
	}
	return err
}

func (out *outputs) close() {
	if out.json != nil {
		out.json.Close()
	}
}
