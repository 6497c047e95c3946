package main

import (
	"fmt"
	"image/color"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	plotWidth = 18 * vg.Centimeter
	plotDPI   = 144
	margin    = 0.3 * vg.Centimeter
)

// look is how a carrier is drawn, in every plot alike.
type look struct {
	color color.Color
	glyph draw.GlyphDrawer
}

var looks = map[string]look{
	"tcp":      {color.RGBA{0x70, 0x70, 0x70, 0xff}, draw.CircleGlyph{}},
	"unix":     {color.RGBA{0xd9, 0x7a, 0x00, 0xff}, draw.TriangleGlyph{}},
	"pipe":     {color.RGBA{0x2a, 0x9d, 0x6f, 0xff}, draw.SquareGlyph{}},
	"buffered": {color.RGBA{0xb0, 0x3a, 0x8c, 0xff}, draw.RingGlyph{}},
	"sannet":   {color.RGBA{0x1f, 0x4e, 0xd8, 0xff}, draw.PyramidGlyph{}},
}

// curve is a plot of how a metric grows with something.
type curve struct {
	over           axis
	prefix, metric string // of workloads
	title, label   string
	scale          float64
}

// axis is what a metric grows with.
type axis struct {
	label string
	of    func(result) int
	name  func(int) string
}

var (
	bySize       = axis{"message size", func(r result) int { return r.Size }, sizeName}
	byConns      = axis{"connections", func(r result) int { return r.Count }, strconv.Itoa}
	byGoroutines = axis{"goroutines at each end of one connection", func(r result) int { return r.Count }, strconv.Itoa}
)

var curves = []curve{
	{bySize, "roundtrip", "time", "Round trip", "µs", 1e-3},
	{bySize, "stream", "rate", "Stream, by the size of writes", "GB/s", 1e-9},
	{bySize, "stream", "cpu", "CPU time of a stream, both sides", "ns per byte", 1},
	{byGoroutines, "writers/64B", "rate", "Stream of many writers, 64 bytes each", "GB/s", 1e-9},
	{byGoroutines, "writers/64KiB", "rate", "Stream of many writers, 64 KiB each", "GB/s", 1e-9},
	{byConns, "active", "rate", "Round trips over many connections, in total", "thousands per second", 1e-3},
	{byConns, "slow", "rate", "Round trips beside a slow reader, in total", "thousands per second", 1e-3},
	{byConns, "stuck", "rate", "Round trips beside a reader that never reads, in total", "thousands per second", 1e-3},
	{byConns, "idle", "rss", "Memory of idle connections, both ends", "KiB per connection", 1.0 / 1024},
}

// writePlots writes every plot as SVG and PNG into dir, and returns the names of the files.
func writePlots(dir string, r *report) (files []string, err error) {
	save := func(name string, p *plot.Plot, height vg.Length) error {
		for ext, c := range map[string]canvas{
			"svg": vgsvg.New(plotWidth, height),
			"png": vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(plotWidth, height), vgimg.UseDPI(plotDPI))},
		} {
			// Tick labels stand out a little.
			p.Draw(draw.Crop(draw.New(c), margin, -margin, margin, -margin))
			file := filepath.Join(dir, name+"."+ext)
			if err := writeTo(file, c); err != nil {
				return err
			}
			files = append(files, file)
		}
		return nil
	}
	for _, m := range r.Modes {
		for _, c := range curves {
			p, err := c.plot(r, m)
			if err != nil {
				return files, err
			}
			if p == nil {
				continue
			}
			if err := save(m.Mode+"-"+strings.ReplaceAll(c.prefix, "/", "-")+"-"+c.metric, p, plotWidth*2/3); err != nil {
				return files, err
			}
		}
		p, rows, err := plotRatios(r, m)
		if err != nil {
			return files, err
		}
		if p == nil {
			continue
		}
		if err := save(m.Mode+"-ratios", p, 4*vg.Centimeter+vg.Length(rows)*0.6*vg.Centimeter); err != nil {
			return files, err
		}
	}
	slices.Sort(files)
	return files, nil
}

// canvas is what a plot is drawn on, and written from.
type canvas interface {
	vg.CanvasSizer
	io.WriterTo
}

func writeTo(file string, c io.WriterTo) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if _, err := c.WriteTo(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// points are medians with their spread.
type points struct {
	plotter.XYs
	plotter.YErrors
	plotter.XErrors
}

// plot draws a line for each carrier, or returns nil where there is not more than a point.
func (c curve) plot(r *report, m mode) (*plot.Plot, error) {
	p := newPlot(c.title + ", " + m.Title)
	ticks := make(map[float64]string)
	for _, carrier := range carrierNames {
		var pts points
		for _, res := range r.carrier(m.Mode, carrier) {
			f, ok := r.find(m.Mode, res.Workload, carrier, c.metric)
			if !strings.HasPrefix(res.Workload, c.prefix+"/") || !ok || f.Min <= 0 { // which a logarithm needs
				continue
			}
			x := float64(c.over.of(res))
			ticks[x] = c.over.name(c.over.of(res))
			pts.XYs = append(pts.XYs, plotter.XY{X: x, Y: f.Median * c.scale})
			pts.YErrors = append(pts.YErrors, spreadOf(f.summary, c.scale))
		}
		if len(pts.XYs) == 0 {
			continue
		}
		// What is given by flags comes in any order.
		line, scatter, err := plotter.NewLinePoints(sorted(pts.XYs))
		if err != nil {
			return nil, err
		}
		bars, err := plotter.NewYErrorBars(pts)
		if err != nil {
			return nil, err
		}
		l := looks[carrier]
		line.Color, scatter.Color, bars.Color = l.color, l.color, l.color
		line.Width = vg.Points(1.5)
		scatter.Shape, scatter.Radius = l.glyph, vg.Points(3)
		p.Add(line, bars, scatter)
		p.Legend.Add(carrier, line, scatter)
	}
	if len(ticks) < 2 {
		return nil, nil
	}
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker = namedTicks(ticks)
	p.Y.Tick.Marker = plot.TickerFunc(logTicks)
	p.X.Label.Text, p.Y.Label.Text = c.over.label, c.label
	p.Legend.Top, p.Legend.Left = true, true
	return p, nil
}

// plotRatios draws a row for each workload, with a point for each carrier, and returns the number of rows. Without any
// ratio it returns nil.
func plotRatios(r *report, m mode) (*plot.Plot, int, error) {
	groups := grouped(r.in(m.Mode))
	slices.Reverse(groups) // the first is at the top
	p := newPlot("Times better than TCP, " + m.Title)
	names := make([]string, len(groups))
	found := false
	for i, carrier := range carrierNames {
		if carrier == "tcp" {
			continue
		}
		var pts points
		for row, group := range groups {
			names[row] = group[0].Workload
			if len(group[0].Metrics) == 0 {
				continue
			}
			f, ok := r.find(m.Mode, group[0].Workload, carrier, group[0].Metrics[0].Name)
			if !ok || f.Ratio == nil {
				continue
			}
			// A little apart, so that none hides another.
			y := float64(row) + 0.2*(2-float64(i))
			pts.XYs = append(pts.XYs, plotter.XY{X: f.Ratio.Median, Y: y})
			pts.XErrors = append(pts.XErrors, struct{ Low, High float64 }(spreadOf(*f.Ratio, 1)))
		}
		if len(pts.XYs) == 0 {
			continue
		}
		found = true
		scatter, err := plotter.NewScatter(pts.XYs)
		if err != nil {
			return nil, 0, err
		}
		bars, err := plotter.NewXErrorBars(pts)
		if err != nil {
			return nil, 0, err
		}
		l := looks[carrier]
		scatter.Color, bars.Color = l.color, l.color
		scatter.Shape, scatter.Radius = l.glyph, vg.Points(3.5)
		p.Add(bars, scatter)
		p.Legend.Add(carrier, scatter)
	}
	if !found {
		return nil, 0, nil
	}
	one, err := plotter.NewLine(plotter.XYs{{X: 1, Y: -0.5}, {X: 1, Y: float64(len(groups)) - 0.5}})
	if err != nil {
		return nil, 0, err
	}
	one.Color = looks["tcp"].color
	p.Add(one)
	p.Legend.Add("tcp", one)
	p.NominalY(names...)
	p.X.Scale = plot.LogScale{}
	p.X.Tick.Marker = plot.TickerFunc(logTicks)
	p.Y.Min, p.Y.Max = -0.5, float64(len(groups))-0.5
	p.X.Min, p.X.Max = min(p.X.Min, 0.5), 4*max(p.X.Max, 2) // with room for the legend
	p.Legend.Top = true
	return p, len(groups), nil
}

func newPlot(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.Padding = vg.Points(6)
	p.Legend.Padding = vg.Points(2)
	grid := plotter.NewGrid()
	grid.Vertical.Color = color.Gray{0xe0}
	grid.Horizontal.Color = color.Gray{0xe0}
	p.Add(grid)
	return p
}

// spreadOf is how far from the median the values go down and up.
func spreadOf(s summary, scale float64) struct{ Low, High float64 } {
	return struct{ Low, High float64 }{(s.Median - s.Min) * scale, (s.Max - s.Median) * scale}
}

func sorted(pts plotter.XYs) plotter.XYs {
	return slices.SortedFunc(slices.Values(pts), func(a, b plotter.XY) int { return int(math.Copysign(1, a.X-b.X)) })
}

// namedTicks are ticks of a logarithmic axis with names, of which those are left out that have no room.
func namedTicks(names map[float64]string) plot.Ticker {
	var ticks []plot.Tick
	values := slices.Sorted(maps.Keys(names))
	room := math.Log(values[len(values)-1]/values[0]) / mostNames
	for i, last := 0, 0.0; i < len(values); i++ {
		t := plot.Tick{Value: values[i]}
		if i == 0 || math.Log(values[i]/last) >= room {
			t.Label, last = names[values[i]], values[i]
		}
		ticks = append(ticks, t)
	}
	return plot.ConstantTicks(ticks)
}

// mostNames is how many names an axis has room for, and one more.
const mostNames = 14

// logTicks are 1, 2 and 5 times the powers of ten, of which the range has at least the powers named.
func logTicks(lo, hi float64) (ticks []plot.Tick) {
	few := hi/lo < 1000
	for e := math.Floor(math.Log10(lo)); e <= math.Ceil(math.Log10(hi)); e++ {
		for _, f := range []float64{1, 2, 5} {
			v := f * math.Pow(10, e)
			if v < lo || v > hi {
				continue
			}
			t := plot.Tick{Value: v}
			if few || f == 1 {
				t.Label = fmt.Sprintf("%.6g", v)
			}
			ticks = append(ticks, t)
		}
	}
	return ticks
}
