package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// progress is a bar on a terminal, and nothing elsewhere. It is drawn between measurements, not during them.
type progress struct {
	w     io.Writer // nil if it is no terminal
	total int
	done  int
	start time.Time
}

const barWidth = 30

func newProgress(w io.Writer, total int) *progress {
	p := &progress{total: total, start: time.Now()}
	if f, ok := w.(*os.File); ok {
		if st, err := f.Stat(); err == nil && st.Mode()&os.ModeCharDevice != 0 {
			p.w = w
		}
	}
	return p
}

// step says that c is next.
func (p *progress) step(c *cell) {
	if p.w != nil {
		full := barWidth * p.done / p.total
		left := ""
		if p.done > 0 {
			d := time.Since(p.start) * time.Duration(p.total-p.done) / time.Duration(p.done)
			left = d.Round(time.Second).String() + " left"
		}
		// The end of the line is erased, so that nothing of a longer one stays.
		fmt.Fprintf(p.w, "\r[%s%s] %3d%% %s  %s over %s\x1b[K", strings.Repeat("#", full), strings.Repeat(".", barWidth-full),
			100*p.done/p.total, left, c.load.name, c.carrier.name)
	}
	p.done++
}

// end removes the bar.
func (p *progress) end() {
	if p.w != nil {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
