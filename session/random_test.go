package session_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/session"
)

// TestRandom has two ends do things at random: write sizes from nothing up, with and without deadlines, read in
// pieces of any size, half-close, drop and close, over providers that differ in what they can, with links of some shape and
// with faults. It compares the streams with what was written, byte by byte, and looks for what is left behind.
//
// By hand: SANSOCK_TIME=5m runs for so long, with sizes up to 64 MiB; SANSOCK_SEED=n runs one seed.
func TestRandom(t *testing.T) {
	largest, budget := 1<<20, 2<<20
	first, end := uint64(0), uint64(less(24, 8))
	var until time.Time
	if s := os.Getenv("SANSOCK_TIME"); s != "" {
		d, err := time.ParseDuration(s)
		require.NoError(t, err)
		largest, budget, end, until = 64<<20, 64<<20, 1<<63, time.Now().Add(d)
	}
	if s := os.Getenv("SANSOCK_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		first, end = n, n+1
	}
	for seed := first; seed < end && (until.IsZero() || time.Now().Before(until)); seed++ {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newRandomRun(seed, largest, budget)
			if w.shaped {
				synctest.Test(t, w.run) // a clock of its own, so that slow links take no time
			} else {
				w.run(t)
			}
		})
		if !ok {
			return
		}
	}
}

// randomRun is what a seed decides.
type randomRun struct {
	seed            uint64
	largest, budget int
	emu             [2]emu.Config
	cfg             session.Config
	shaped, faulty  bool
	end             [2]string // what an end does before its stream is over, if anything
}

func newRandomRun(seed uint64, largest, budget int) *randomRun {
	r := rand.New(rand.NewPCG(seed, 1))
	w := &randomRun{seed: seed, largest: largest, budget: budget}
	kinds := []emu.Config{{}, {NoRDMARead: true}, {MaxInline: -1, LocalRegistration: true, MaxRDMA: 300_000, MaxMessage: 8 << 10},
		{MaxInline: 64, NoRDMARead: true, LocalRegistration: true, MaxRDMA: 70_000}, {Buffered: 1 << 20}, {MaxRecvs: 16, MaxSends: 4, MaxMessage: 300}}
	w.shaped, w.faulty = r.IntN(3) == 0, r.IntN(3) == 0
	steps := []emu.Step{emu.StepAllocate, emu.StepRegister, emu.StepExpose, emu.StepDeregister, emu.StepPostRecv, emu.StepPostSend,
		emu.StepPostWrite, emu.StepPostRead, emu.StepTransfer}
	for i := range w.emu {
		c := kinds[r.IntN(len(kinds))]
		if w.shaped {
			c.Link = emu.Link{Latency: time.Duration(r.IntN(3000)) * time.Microsecond, Bandwidth: 100 << 20 << r.IntN(7)}
		}
		if r.IntN(4) == 0 {
			c.Completions = emu.Completions{Delay: time.Duration(1+r.IntN(300)) * time.Microsecond, Batch: 1 + r.IntN(5)}
		}
		if w.faulty {
			c.Seed = seed
			for range 1 + r.IntN(3) {
				c.Faults = append(c.Faults, emu.Fault{Step: steps[r.IntN(len(steps))], Probability: 1 / float64(20+r.IntN(2000))})
			}
		}
		w.emu[i] = c
		if r.IntN(3) == 0 {
			w.end[i] = []string{"close", "drop", "close read", "close write", "cut"}[r.IntN(5)]
		}
	}
	w.cfg = session.Config{ReadBuffer: 4<<10 + r.IntN(1<<r.IntN(22)), Threshold: []int{0, 0, -1, 1, 5000}[r.IntN(5)]}
	return w
}

// randomEnd is one end.
type randomEnd struct {
	c          *session.Conn
	sent       uint64
	got        uint64
	moved      *atomic.Uint64 // bytes read at both ends, to tell slow from stuck
	acted      atomic.Bool    // it has closed or dropped something before its time
	deaf       bool           // CloseRead
	wErr, rErr error          // that ended writing and reading
}

func (w *randomRun) run(t *testing.T) {
	rig := newRig(t, w.emu[0], w.emu[1], w.cfg)
	rig.fail = w.faulty
	conns := rig.connect()
	if conns[0] == nil || conns[1] == nil {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
		return
	}
	var ends [2]*randomEnd
	moved := new(atomic.Uint64)
	for i, c := range conns {
		ends[i] = &randomEnd{c: c, moved: moved}
	}
	var wg sync.WaitGroup
	for i, e := range ends {
		wg.Go(func() { w.writer(t, e, i) })
		wg.Go(func() { w.reader(t, e, i) })
	}
	wg.Wait()
	for i, e := range ends {
		o := ends[1-i]
		undisturbed := !w.faulty && !e.acted.Load() && !o.acted.Load()
		if undisturbed {
			assert.NoError(t, e.wErr, "end %d", i)
			assert.Equal(t, io.EOF, e.rErr, "end %d", i)
		}
		// The end of the stream is told truthfully, unless it is only what is left of a broken connection.
		if undisturbed || e.rErr == io.EOF && e.wErr == nil && o.wErr == nil && !e.acted.Load() && !o.deaf {
			assert.Equal(t, o.sent, e.got, "end %d", i)
		}
		assert.LessOrEqual(t, e.got, o.sent+uint64(w.largest))
	}
	for _, e := range ends {
		e.c.Close()
	}
	assert.Eventually(t, func() bool { return rig.p[0].Stats().Endpoints+rig.p[1].Stats().Endpoints == 0 }, 5*time.Second, time.Millisecond,
		"both ends are gone")
	for _, p := range rig.p {
		assert.Zero(t, p.Stats().Registrations)
	}
}

// patience is how long nothing may move.
const patience = time.Minute

func (w *randomRun) size(r *rand.Rand) int {
	n := []int{1, 100, 5000, 20_000, 100_000, 1 << 20, w.largest}[r.IntN(7)]
	if r.IntN(20) == 0 {
		return 0
	}
	return r.IntN(min(n, w.largest) + 1)
}

// deadline is what an operation gets: far away, near, or past.
func (w *randomRun) deadline(r *rand.Rand) (at time.Time, far bool) {
	switch r.IntN(10) {
	case 0:
		return time.Now().Add(-time.Second), false
	case 1, 2, 3:
		return time.Now().Add(time.Duration(r.IntN(5000)) * time.Microsecond), false
	}
	return time.Now().Add(patience), true
}

func (w *randomRun) writer(t *testing.T, e *randomEnd, i int) {
	r := rand.New(rand.NewPCG(w.seed, uint64(10+i)))
	act := r.IntN(w.budget)
	var b []byte
	for int(e.sent) < w.budget {
		if w.end[i] != "" && int(e.sent) >= act {
			e.acted.Store(true)
			switch w.end[i] {
			case "close":
				e.c.Close()
			case "drop":
				e.c.SetLinger(0)
				e.c.Close()
			case "close read":
				e.deaf = true
				e.c.CloseRead()
			case "close write":
				e.c.CloseWrite()
			case "cut":
				w.cut(e)
			}
			w.end[i] = ""
		}
		n := w.size(r)
		if n > len(b) {
			b = make([]byte, n)
		}
		at, far := w.deadline(r)
		moved := e.moved.Load()
		e.c.SetWriteDeadline(at)
		var m int
		var err error
		if r.IntN(6) == 0 {
			var buf *session.Buffer
			if buf, err = e.c.NewBuffer(n); err == nil {
				putPattern(buf.Bytes(), e.sent)
				m, err = e.c.WriteBuffer(buf, n)
			}
		} else {
			putPattern(b[:n], e.sent)
			m, err = e.c.Write(b[:n])
			clear(b[:n])
		}
		assert.True(t, m >= 0 && m <= n && (err != nil || m == n))
		e.sent += uint64(m)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if !assert.False(t, far && moved == e.moved.Load(), "end %d: a Write of %d bytes hangs", i, n) || !assert.False(t, time.Now().Before(at)) {
				e.c.Close()
				return
			}
			continue
		}
		if err != nil {
			e.wErr = err
			break
		}
	}
	if err := e.c.CloseWrite(); err != nil && e.wErr == nil {
		e.wErr = err
	}
}

// cut ends the connection as a failing link does.
func (w *randomRun) cut(e *randomEnd) { e.c.SetLinger(0); e.c.Close() }

func (w *randomRun) reader(t *testing.T, e *randomEnd, i int) {
	r := rand.New(rand.NewPCG(w.seed, uint64(20+i)))
	var b []byte
	for {
		at, far := w.deadline(r)
		moved := e.moved.Load()
		e.c.SetReadDeadline(at)
		var p []byte
		var n int
		var err error
		if r.IntN(8) == 0 {
			var buf *session.Buffer
			if buf, err = e.c.ReadBuffer(); err == nil {
				p = append([]byte(nil), buf.Bytes()...)
				n = len(p)
				buf.Release()
			}
		} else {
			if n = w.size(r) + 1; n > len(b) {
				b = make([]byte, n)
			}
			p = b[:n]
			n, err = e.c.Read(p)
		}
		ok := assert.True(t, isPattern(p[:n], e.got), "end %d: wrong bytes behind %d", i, e.got)
		e.got += uint64(n)
		e.moved.Add(uint64(n))
		clear(p)
		if !ok {
			e.c.Close()
			e.rErr = err
			return
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if !assert.False(t, far && moved == e.moved.Load(), "end %d: a Read hangs behind %d", i, e.got) || !assert.False(t, time.Now().Before(at)) {
				e.c.Close()
				return
			}
			continue
		}
		if err != nil {
			e.rErr = err
			if err == net.ErrClosed {
				assert.True(t, e.acted.Load())
			}
			return
		}
	}
}
