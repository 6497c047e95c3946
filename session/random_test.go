package session_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/session"
	"sansock/session/sessiontest"
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
	*sessiontest.Traffic
	emu    [2]emu.Config
	cfg    session.Config
	shaped bool
}

func newRandomRun(seed uint64, largest, budget int) *randomRun {
	r := rand.New(rand.NewPCG(seed, 1))
	w := new(randomRun)
	w.Traffic, w.cfg = sessiontest.New(seed, largest, budget)
	kinds := []emu.Config{{}, {NoRDMARead: true}, {MaxInline: -1, LocalRegistration: true, MaxRDMA: 300_000, MaxMessage: 8 << 10},
		{MaxInline: 64, NoRDMARead: true, LocalRegistration: true, MaxRDMA: 70_000}, {Buffered: 1 << 20}, {MaxRecvs: 16, MaxSends: 4, MaxMessage: 300}}
	w.shaped, w.Faulty = r.IntN(3) == 0, r.IntN(3) == 0
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
		if w.Faulty {
			c.Faults.Seed = seed
			for range 1 + r.IntN(3) {
				c.Faults.Rules = append(c.Faults.Rules,
					emu.Fault{Step: steps[r.IntN(len(steps))], Probability: 1 / float64(20+r.IntN(2000))})
			}
		}
		w.emu[i] = c
	}
	return w
}

func (w *randomRun) run(t *testing.T) {
	rig := newRig(t, w.emu[0], w.emu[1], w.cfg)
	rig.fail = w.Faulty
	conns := rig.connect()
	if conns[0] == nil || conns[1] == nil {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
		return
	}
	w.Run(t, conns)
	assert.Eventually(t, func() bool { return rig.p[0].Stats().Endpoints+rig.p[1].Stats().Endpoints == 0 }, 5*time.Second, time.Millisecond,
		"both ends are gone")
	for _, p := range rig.p {
		assert.Zero(t, p.Stats().Registrations)
	}
}
