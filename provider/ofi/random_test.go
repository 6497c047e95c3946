//go:build ofi && cgo && linux

package ofi

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sansock/session"
	"sansock/session/sessiontest"
)

// TestSessionRandom is the randomised test of sessions over the fabric under test. By hand: SANSOCK_SEEDS=n tries so many.
func TestSessionRandom(t *testing.T) {
	seeds, largest, budget := uint64(16), 1<<20, 2<<20
	if testFabric != fabricTCP {
		largest, budget = 300<<10, 1<<20 // the device is emulated in an emulated machine
		if testing.Short() {
			seeds, budget = 8, 400<<10
		}
	}
	if s := os.Getenv("SANSOCK_SEEDS"); s != "" {
		var err error
		seeds, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	p := opened(t)
	for seed := range seeds {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w, cfg := sessiontest.New(seed, largest, budget)
			a, b := sessions(t, p, cfg)
			w.Run(t, [2]*session.Conn{a, b})
			// Some connections end in the background. The provider itself remains.
			require.Eventually(t, func() bool { return users(p.fab) == 1 }, 20*time.Second, time.Millisecond, "both ends are gone")
		})
		if !ok {
			return
		}
	}
}

func users(f *fabric) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refs
}
