package main

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSummary(t *testing.T) {
	values := []float64{5, 1, 4, 2, 3}
	assert.Equal(t, summary{Median: 3, Min: 1, Max: 5, Q1: 2, Q3: 4}, summarize(values))
	assert.Equal(t, []float64{5, 1, 4, 2, 3}, values)
	assert.Equal(t, summary{Median: 2.5, Min: 1, Max: 4, Q1: 1.75, Q3: 3.25}, summarize([]float64{4, 3, 2, 1}))
	assert.Equal(t, summary{7, 7, 7, 7, 7}, summarize([]float64{7}))
}

func TestRatios(t *testing.T) {
	assert.Equal(t, []float64{2, 0.5}, ratios([]float64{10, 10}, []float64{20, 5}, true))
	assert.Equal(t, []float64{0.5, 2}, ratios([]float64{10, 10}, []float64{20, 5}, false))
	assert.Equal(t, []float64{3}, ratios([]float64{0, 10, 10, -1}, []float64{1, 30, 0, 1}, true))
}

func TestFormats(t *testing.T) {
	for want, got := range map[string]string{
		"372ns":     nsPerOp.format(372.4),
		"14.0µs":    nsPerOp.format(14_000),
		"1.50ms":    cpuPerOp.format(1.5e6),
		"2.00s":     nsPerOp.format(2e9),
		"0.00ns/s":  cpuPerSecond.format(0),
		"4.12GB/s":  bytesPerSecond.format(4.119e9),
		"48.2k/s":   opsPerSecond.format(48_200),
		"6.80KiB":   bytesPerConn.format(6963),
		"-2.00KiB":  bytesPerConn.format(-2048),
		"0.25ns/B":  cpuPerByte.format(0.249),
		"0.025ns/B": cpuPerByte.format(0.0249),
		"2.00":      perConn.format(2),
		"1.00x":     times(0.999),
		"35.0x":     times(34.96),
		"100x":      times(99.96),
		"0.80x":     times(0.8),
		"16MiB":     sizeName(16 << 20),
		"4097B":     sizeName(4097),
	} {
		assert.Equal(t, want, got)
	}
}

// fakeCells are a workload over two carriers, in three rounds.
func fakeCells() (*rig, []*cell) {
	r := &rig{mode: modeOne, title: "one process"}
	w := workload{name: "roundtrip/64B", size: 64, metrics: []metric{
		{"time", nsPerOp, false}, {"rss", bytesPerConn, false}, {"descriptors", perConn, false},
	}}
	nan := math.NaN()
	return r, []*cell{
		{rig: r, load: w, carrier: carrier{name: "tcp"}, paths: map[string]int{"tcp": 3},
			rounds: [][]float64{{1000, nan, 2}, {4000, nan, 2}, {2000, nan, 2}}},
		{rig: r, load: w, carrier: carrier{name: "sannet"},
			paths:  map[string]int{"san via emu": 2, "tcp: TCP was faster than the SAN": 1},
			rounds: [][]float64{{100, nan, 0}, {100, nan, 0}, {1000, nan, 0}}},
	}
}

func TestReport(t *testing.T) {
	r0, cells := fakeCells()
	r := newReport(options{}, []*rig{r0}, cells, nil, 3)
	require.Len(t, r.Results, 2)
	f, ok := r.find("procs1", "roundtrip/64B", "sannet", "time")
	require.True(t, ok)
	assert.Equal(t, 100.0, f.Median)
	// The median of the rounds' ratios 10, 40 and 2, not the ratio of the medians.
	assert.Equal(t, summary{Median: 10, Min: 2, Max: 40, Q1: 6, Q3: 25}, *f.Ratio)
	_, ok = r.find("procs1", "roundtrip/64B", "sannet", "rss")
	assert.False(t, ok, "not known on this system")
	f, ok = r.find("procs1", "roundtrip/64B", "sannet", "descriptors")
	require.True(t, ok)
	assert.Nil(t, f.Ratio, "infinite")
	assert.Equal(t, []string{"one process: sannet went over san via emu (2 of 3 connections), and tcp: TCP was faster " +
		"than the SAN (1 of 3 connections); its figures are of both"}, r.notes())

	var b bytes.Buffer
	require.NoError(t, writeTable(&b, r))
	assert.Regexp(t, `(?m)^roundtrip/64B  time +tcp      2\.00µs  1\.00µs\.\.4\.00µs +$`, b.String())
	assert.Regexp(t, `(?m)^ +sannet   100ns +100ns\.\.1\.00µs +10\.0x   2\.00x\.\.40\.0x$`, b.String())
	assert.Regexp(t, `(?m)^roundtrip/64B  10\.0x +$`, b.String())
}

// TestPartialReport: after an interruption the complete rounds count.
func TestPartialReport(t *testing.T) {
	r0, cells := fakeCells()
	r := newReport(options{}, []*rig{r0}, cells, nil, 1)
	f, _ := r.find("procs1", "roundtrip/64B", "sannet", "time")
	assert.Equal(t, []float64{100}, f.Samples)
	assert.Equal(t, 10.0, f.Ratio.Median)
}

func TestProgress(t *testing.T) {
	var b bytes.Buffer
	assert.Nil(t, newProgress(&b, 4).w, "no terminal")
	p := &progress{w: &b, total: 4, start: time.Now()}
	_, cells := fakeCells()
	for range 4 {
		p.step(cells[0])
	}
	p.end()
	assert.Contains(t, b.String(), "\r[..............................]   0%")
	assert.Contains(t, b.String(), "\r[######################........]  75% 0s left  roundtrip/64B over tcp")
	assert.True(t, bytes.HasSuffix(b.Bytes(), []byte("\r\x1b[K")))
}
