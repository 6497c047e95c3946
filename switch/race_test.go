package sanswitch

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"sansock/provider"
)

// leg is a scripted attempt.
type leg struct {
	path Path
	take time.Duration // -1: until the context ends
	err  error
	deaf bool // to the context

	started, ended time.Duration // since the start of the race; -1: not
}

func (l *leg) run(ctx context.Context, begin time.Time) (Result, error) {
	l.started = time.Since(begin)
	defer func() { l.ended = time.Since(begin) }()
	var done <-chan struct{}
	if !l.deaf {
		done = ctx.Done()
	}
	var timer <-chan time.Time
	if l.take >= 0 {
		timer = time.After(l.take)
	}
	select {
	case <-timer:
		if l.err != nil {
			return Result{}, l.err
		}
		return Result{Route: Route{Path: l.path}}, nil
	case <-done:
		return Result{}, ctx.Err()
	}
}

// The head start, the fallback and the cleaning up, in a bubble of time.
func TestRace(t *testing.T) {
	const ms = time.Millisecond
	const never = -1
	var (
		fails    = errors.New("SAN fails")
		tcpFails = errors.New("TCP fails")
		closed   = os.NewSyscallError("connect", syscall.ECONNREFUSED)
		refused  = &failure{err: provider.StatusRefused, final: closed}
	)
	for _, c := range []struct {
		name     string
		san, tcp leg
		many     bool          // the name has several addresses
		reached  time.Duration // 0: never
		timeout  time.Duration // of the context; 0: none

		won      Path // 0: none
		sanErr   error
		err      error
		took     time.Duration
		tcpStart time.Duration // never: not at all
		aborted  []Path
	}{
		{name: "SAN at once", san: leg{take: ms}, tcp: leg{take: ms},
			won: PathSAN, took: ms, tcpStart: never},
		{name: "SAN within its lead", san: leg{take: 49 * ms}, tcp: leg{take: ms},
			won: PathSAN, took: 49 * ms, tcpStart: never},
		{name: "TCP overtakes", san: leg{take: 80 * ms}, tcp: leg{take: ms},
			won: PathTCP, took: 51 * ms, tcpStart: 50 * ms},
		{name: "SAN wins after its lead", san: leg{take: 80 * ms}, tcp: leg{take: 200 * ms},
			won: PathSAN, took: 80 * ms, tcpStart: 50 * ms},
		{name: "SAN is silent", san: leg{take: never}, tcp: leg{take: ms},
			won: PathTCP, took: 51 * ms, tcpStart: 50 * ms},
		{name: "SAN reached late has its lead again", san: leg{take: 80 * ms}, tcp: leg{take: ms}, reached: 40 * ms,
			won: PathSAN, took: 80 * ms, tcpStart: never},
		{name: "SAN reached, then silent", san: leg{take: never}, tcp: leg{take: ms}, reached: 40 * ms,
			won: PathTCP, took: 91 * ms, tcpStart: 90 * ms},
		{name: "SAN fails at once", san: leg{take: ms, err: fails}, tcp: leg{take: 3 * ms},
			won: PathTCP, sanErr: fails, took: 4 * ms, tcpStart: ms},
		{name: "SAN fails while TCP dials", san: leg{take: 60 * ms, err: fails}, tcp: leg{take: 30 * ms},
			won: PathTCP, sanErr: fails, took: 80 * ms, tcpStart: 50 * ms},
		{name: "SAN refuses", san: leg{take: ms, err: refused}, tcp: leg{take: ms},
			sanErr: refused, err: refused, took: ms, tcpStart: never},
		{name: "SAN refuses while TCP dials", san: leg{take: 60 * ms, err: refused}, tcp: leg{take: 30 * ms},
			sanErr: refused, err: refused, took: 60 * ms, tcpStart: 50 * ms},
		{name: "SAN refuses one of several", san: leg{take: ms, err: refused}, tcp: leg{take: ms}, many: true,
			won: PathTCP, sanErr: refused, took: 2 * ms, tcpStart: ms},
		{name: "both fail", san: leg{take: ms, err: fails}, tcp: leg{take: ms, err: tcpFails},
			sanErr: fails, err: tcpFails, took: 2 * ms, tcpStart: ms},
		{name: "TCP fails first", san: leg{take: 90 * ms}, tcp: leg{take: ms, err: tcpFails},
			won: PathSAN, took: 90 * ms, tcpStart: 50 * ms},
		{name: "TCP fails first, then SAN", san: leg{take: 90 * ms, err: fails}, tcp: leg{take: ms, err: tcpFails},
			sanErr: fails, err: tcpFails, took: 90 * ms, tcpStart: 50 * ms},
		{name: "TCP is refused", san: leg{take: 90 * ms}, tcp: leg{take: ms, err: closed},
			err: closed, took: 51 * ms, tcpStart: 50 * ms},
		{name: "TCP is refused for one of several", san: leg{take: 90 * ms}, tcp: leg{take: ms, err: closed}, many: true,
			won: PathSAN, took: 90 * ms, tcpStart: 50 * ms},
		{name: "context ends within the lead", san: leg{take: never}, tcp: leg{take: never}, timeout: 10 * ms,
			err: context.DeadlineExceeded, took: 10 * ms, tcpStart: 10 * ms},
		{name: "context ends within the lead, SAN is deaf", san: leg{take: 500 * ms, deaf: true}, tcp: leg{take: never},
			timeout: 10 * ms, err: context.DeadlineExceeded, took: 10 * ms, tcpStart: 10 * ms, aborted: []Path{PathSAN}},
		{name: "context ends after the lead", san: leg{take: never}, tcp: leg{take: never}, timeout: 100 * ms,
			err: context.DeadlineExceeded, took: 100 * ms, tcpStart: 50 * ms},
		{name: "context ends after TCP has failed", san: leg{take: 500 * ms, deaf: true}, tcp: leg{take: ms, err: tcpFails},
			timeout: 100 * ms, sanErr: context.DeadlineExceeded, err: tcpFails, took: 100 * ms, tcpStart: 50 * ms, aborted: []Path{PathSAN}},
		{name: "deaf SAN loses", san: leg{take: 500 * ms, deaf: true}, tcp: leg{take: ms},
			won: PathTCP, took: 51 * ms, tcpStart: 50 * ms, aborted: []Path{PathSAN}},
		{name: "deaf TCP loses", san: leg{take: 80 * ms}, tcp: leg{take: 500 * ms, deaf: true},
			won: PathSAN, took: 80 * ms, tcpStart: 50 * ms, aborted: []Path{PathTCP}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				if c.timeout != 0 {
					ctx, cancel = context.WithTimeout(ctx, c.timeout)
				}
				defer cancel()
				begin := time.Now()
				san, tcp := c.san, c.tcp
				san.path, tcp.path, tcp.started = PathSAN, PathTCP, never
				var mu sync.Mutex
				var aborted []Path
				r := race{
					first:  func(ctx context.Context) (Result, error) { return san.run(ctx, begin) },
					second: func(ctx context.Context) (Result, error) { return tcp.run(ctx, begin) },
					lead:   50 * ms,
					single: !c.many,
					abort: func(r Result) {
						mu.Lock()
						defer mu.Unlock()
						aborted = append(aborted, r.Route.Path)
					},
				}
				if san.deaf {
					r.first = promptly(r.first, r.abort)
				}
				if c.reached > 0 {
					time.AfterFunc(c.reached, r.reached)
				}
				res, sanErr, err := r.run(ctx)
				took := time.Since(begin)
				synctest.Wait()
				assert.Equal(t, c.took, took)
				assert.Equal(t, c.err, err)
				assert.Equal(t, c.won, res.Route.Path)
				if c.err != context.DeadlineExceeded {
					assert.Equal(t, c.sanErr, sanErr)
				}
				assert.Equal(t, c.tcpStart, tcp.started)
				if !san.deaf {
					assert.LessOrEqual(t, san.ended, took, "called off with the race")
				}
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				assert.Equal(t, c.aborted, aborted)
			})
		})
	}
}

// Whatever both attempts do at the same moment, one connection is returned and the other, if made, ended.
func TestRaceTies(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			ended := make(map[Path]int)
			leg := func(p Path) func(context.Context) (Result, error) {
				return func(context.Context) (Result, error) {
					time.Sleep(time.Until(time.Date(2000, 1, 1, 0, 0, 1, 0, time.UTC)))
					return Result{Route: Route{Path: p}}, nil
				}
			}
			r := race{first: leg(PathSAN), second: leg(PathTCP), lead: time.Millisecond, single: true, abort: func(r Result) {
				mu.Lock()
				defer mu.Unlock()
				ended[r.Route.Path]++
			}}
			r.first = promptly(r.first, r.abort)
			res, sanErr, err := r.run(t.Context())
			synctest.Wait()
			assert.NoError(t, err)
			assert.NoError(t, sanErr)
			assert.Len(t, ended, 1)
			assert.Equal(t, 1, ended[PathTCP+PathSAN-res.Route.Path])
		})
	}
}
