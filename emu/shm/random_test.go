//go:build linux

package shm

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sansock/provider"
	"sansock/session"
	"sansock/session/sessiontest"
)

// randomJob is what the other process of TestRandom does with its next connection.
type randomJob struct {
	Seed            uint64
	Largest, Budget int
}

// randomResult is its answer. It keeps the connection until the next job.
type randomResult struct {
	sessiontest.Result
	Problems []string
}

// random is the other end of TestRandom. Its first connection brings the jobs.
func random(s *san, l provider.Listener) error {
	next := func(cfg session.Config) (*session.Conn, error) {
		ep, err := accept(l)
		if err != nil {
			return nil, err
		}
		return session.Negotiate(context.Background(), ep, session.Listener, cfg)
	}
	c, err := next(session.Config{})
	if err != nil {
		return err
	}
	jobs, results := json.NewDecoder(c), json.NewEncoder(c)
	var last *session.Conn
	for {
		var j randomJob
		err := jobs.Decode(&j)
		if last != nil {
			last.Close() // as both ends were done with it
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		w, cfg := sessiontest.New(j.Seed, j.Largest, j.Budget)
		x, err := next(cfg)
		if err != nil {
			return err
		}
		var p problems
		r := randomResult{Result: w.RunEnd(&p, x, 1)}
		r.Problems = p.all
		if err := results.Encode(r); err != nil {
			return err
		}
		last = x
	}
}

// problems are failed assertions.
type problems struct {
	mu  sync.Mutex
	all []string
}

func (p *problems) Errorf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, fmt.Sprintf(format, args...))
}

// TestRandom has the two ends of sessions, in two processes, do things at random: write sizes from nothing up, with and without
// deadlines, by messages and by RDMA, read in pieces of any size, half-close, drop and close. The streams are compared with
// what was written, byte by byte.
//
// By hand: SANSOCK_TIME=5m runs for so long, with sizes up to 64 MiB; SANSOCK_SEED=n runs one seed.
func TestRandom(t *testing.T) {
	largest, budget := 1<<20, 2<<20
	first, end := uint64(0), uint64(40)
	if raced || testing.Short() {
		end = 10
	}
	var until time.Time
	if v := os.Getenv("SANSOCK_TIME"); v != "" {
		d, err := time.ParseDuration(v)
		require.NoError(t, err)
		largest, budget, end, until = 64<<20, 64<<20, 1<<63, time.Now().Add(d)
	}
	if v := os.Getenv("SANSOCK_SEED"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		require.NoError(t, err)
		first, end = n, n+1
	}
	p := start(t, "random", space(t))
	s := openSAN(t, Config{Space: space(t)})
	control := p.dial(t, s)
	jobs, results := json.NewEncoder(control), json.NewDecoder(control)
	var moved session.Stats
	seed := first
	for ; seed < end && (until.IsZero() || time.Now().Before(until)) && !t.Failed(); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			require.NoError(t, jobs.Encode(randomJob{seed, largest, budget}))
			w, cfg := sessiontest.New(seed, largest, budget)
			ep, err := s.Dial(context.Background(), netip.AddrPort{}, p.addr)
			require.NoError(t, err)
			c, err := session.Negotiate(context.Background(), ep, session.Dialer, cfg)
			require.NoError(t, err)
			defer c.Close()
			var r randomResult
			mine := w.RunEnd(t, c, 0)
			require.NoError(t, results.Decode(&r))
			require.Empty(t, r.Problems, "at the other end")
			w.Compare(t, [2]sessiontest.Result{mine, r.Result})
			moved.BytesCopiedIn += c.Stats().BytesCopiedIn
			moved.BytesRDMAIn += c.Stats().BytesRDMAIn
		})
	}
	t.Logf("%d sessions; here came %d bytes in messages, %d by RDMA", seed-first, moved.BytesCopiedIn, moved.BytesRDMAIn)
	require.NoError(t, control.Close())
	require.Eventually(t, func() bool { return idle(s) }, 10*time.Second, time.Millisecond)
}
