package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
)

// unit is what a figure counts.
type unit string

const (
	nsPerOp        unit = "ns/op"
	cpuPerOp       unit = "CPU ns/op"
	cpuPerByte     unit = "CPU ns/B"
	cpuPerSecond   unit = "CPU ns/s"
	bytesPerSecond unit = "B/s"
	opsPerSecond   unit = "1/s"
	bytesPerConn   unit = "B/connection"
	perConn        unit = "1/connection"
	share          unit = "of 1"
)

// format writes a value of the unit for people.
func (u unit) format(v float64) string {
	switch u {
	case nsPerOp, cpuPerOp:
		return scaled(v, 1000, "ns", "µs", "ms", "s")
	case cpuPerSecond:
		return scaled(v, 1000, "ns", "µs", "ms", "s") + "/s"
	case cpuPerByte:
		return digits(v) + "ns/B"
	case bytesPerSecond:
		return scaled(v, 1000, "B/s", "kB/s", "MB/s", "GB/s")
	case opsPerSecond:
		return scaled(v, 1000, "/s", "k/s", "M/s")
	case bytesPerConn:
		return scaled(v, 1024, "B", "KiB", "MiB")
	}
	return digits(v)
}

// scaled writes v with the largest unit in which it is at least 1.
func scaled(v, step float64, units ...string) string {
	i := 0
	for ; i < len(units)-1 && math.Abs(v) >= step; i++ {
		v /= step
	}
	return digits(v) + units[i]
}

// digits writes v with three digits that mean something.
func digits(v float64) string {
	a := math.Abs(v)
	switch {
	case a >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 0.0995 || a == 0:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

func times(v float64) string { return digits(v) + "x" }

// writeTable writes the report as text: first every cell, then the ratios in short.
func writeTable(w io.Writer, r *report) error {
	var b strings.Builder
	cpu := ""
	if r.CPU != "" {
		cpu = ", " + r.CPU
	}
	fmt.Fprintf(&b, "%s %s/%s, %d CPUs, GOMAXPROCS %d%s\n", r.Go, r.OS, r.Arch, r.CPUs, r.GOMAXPROCS, cpu)
	fmt.Fprintf(&b, "%d rounds of %s per cell; medians, least..most; x: times better than tcp, median of the rounds' ratios\n",
		r.Rounds, r.CellTime)
	if r.Touch {
		b.WriteString("streams: every cache line is written by the writer and read by the reader\n")
	}
	for _, m := range r.Modes {
		fmt.Fprintf(&b, "\n%s\n\n", strings.ToUpper(m.Title[:1])+m.Title[1:])
		writeCells(&b, r.in(m.Mode))
	}
	if err := writeRatios(&b, r); err != nil {
		return err
	}
	b.WriteByte('\n')
	for _, note := range r.notes() {
		b.WriteString(note + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeCells has a line for each metric of each result.
func writeCells(b *strings.Builder, results []result) {
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "workload\tmetric\tcarrier\tmedian\tleast..most\tvs tcp\tleast..most")
	for _, group := range grouped(results) {
		for i := range group[0].Metrics {
			for j, res := range group {
				name, metric := "", ""
				if j == 0 {
					metric = res.Metrics[i].Name
					if i == 0 {
						name = res.Workload
					}
				}
				f := res.Metrics[i]
				ratio, spread := "", ""
				if f.Ratio != nil && res.Carrier != "tcp" {
					ratio = times(f.Ratio.Median)
					spread = times(f.Ratio.Min) + ".." + times(f.Ratio.Max)
				}
				fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s..%s\t%s\t%s\n", name, metric, res.Carrier,
					f.Unit.format(f.Median), f.Unit.format(f.Min), f.Unit.format(f.Max), ratio, spread)
			}
		}
	}
	tw.Flush()
}

// grouped returns results that have the workload in common together: they follow each other.
func grouped(results []result) (groups [][]result) {
	for i, res := range results {
		if i == 0 || res.Workload != results[i-1].Workload {
			groups = append(groups, nil)
		}
		last := &groups[len(groups)-1]
		*last = append(*last, res)
	}
	return groups
}

// writeRatios has a line for each workload, with the ratio of its first metric, and a column for each carrier.
func writeRatios(b *strings.Builder, r *report) error {
	type column struct{ mode, carrier string }
	var columns []column
	modes, names := "\t", "vs tcp\t"
	for _, m := range r.Modes {
		title := m.Title
		for _, carrier := range carrierNames {
			if carrier == "tcp" || len(r.carrier(m.Mode, carrier)) == 0 {
				continue
			}
			columns = append(columns, column{m.Mode, carrier})
			modes += title + "\t"
			names += carrier + "\t"
			title = ""
		}
	}
	if len(columns) == 0 {
		return nil
	}
	b.WriteByte('\n')
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, modes)
	fmt.Fprintln(tw, names)
	for _, group := range grouped(r.in(r.Modes[0].Mode)) {
		if len(group[0].Metrics) == 0 {
			continue
		}
		name, metric := group[0].Workload, group[0].Metrics[0].Name
		line := name + "\t"
		for _, c := range columns {
			if f, ok := r.find(c.mode, name, c.carrier, metric); ok && f.Ratio != nil {
				line += times(f.Ratio.Median)
			}
			line += "\t"
		}
		fmt.Fprintln(tw, line)
	}
	return tw.Flush()
}

// carrier returns the results of a mode over a carrier.
func (r *report) carrier(mode, carrier string) (rs []result) {
	for _, res := range r.in(mode) {
		if res.Carrier == carrier {
			rs = append(rs, res)
		}
	}
	return rs
}
