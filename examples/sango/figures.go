package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// figure is what a client has measured.
type figure struct {
	name   string
	value  float64
	unit   string
	higher bool // is better
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// driveFigures are those that drive prints.
func driveFigures(out string) (figures []figure, err error) {
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) != 4 {
			continue
		}
		v, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			return nil, err
		}
		figures = append(figures, figure{f[0], v, f[2], f[3] == "higher"})
	}
	return figures, nil
}

// vegetaFigures are those of a report.
func vegetaFigures(out string) ([]figure, error) {
	var r struct {
		Throughput float64
		Success    float64
		Latencies  map[string]float64
		Errors     []string
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	if r.Success != 1 {
		return nil, fmt.Errorf("%.2f %% of the requests failed: %v", 100*(1-r.Success), r.Errors)
	}
	return []figure{
		{"requests, 8 at a time", r.Throughput, "/s", true},
		{"median", r.Latencies["50th"] / 1e3, "µs", false},
	}, nil
}

var natsRate = regexp.MustCompile(`([0-9,]+) msgs/sec`)

// natsFigures are those of nats bench.
func natsFigures(out string) ([]figure, error) {
	m := natsRate.FindStringSubmatch(out)
	if m == nil {
		return nil, fmt.Errorf("no figures: %s", out[max(len(out)-300, 0):])
	}
	v, err := strconv.ParseFloat(strings.ReplaceAll(m[1], ",", ""), 64)
	return []figure{{"requests", v, "/s", true}}, err
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

// show is a value with three digits.
func (f figure) show(v float64) string {
	for _, s := range []struct {
		at float64
		k  string
	}{{1e6, "M"}, {1e3, "k"}} {
		if f.unit == "/s" && v >= s.at {
			return fmt.Sprintf("%.3g %s%s", v/s.at, s.k, f.unit)
		}
	}
	return fmt.Sprintf("%.3g %s", v, f.unit)
}
