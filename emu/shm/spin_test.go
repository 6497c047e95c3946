//go:build linux

package shm

import (
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/internal/spin"
)

// Where yields give the core to somebody who computes, they are tried more and more rarely; after
// quiet times as often as at first.
func TestLongYields(t *testing.T) {
	var p pace
	now := time.Hour
	for want := guardFirst; ; want *= 2 {
		p.long(now)
		want = min(want, guardLast)
		assert.Equal(t, now+want, p.until)
		now += want + 4*time.Millisecond // what a yield takes then
		if want == guardLast {
			break
		}
	}
	now += guardMemory*guardLast + 1
	p.long(now)
	assert.Equal(t, now+guardFirst, p.until)
}

// testLink is a link as far as linger looks at it.
func testLink() *link { return &link{hdr: viewHeader(make([]byte, headerBytes))} }

func TestLinger(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	// A link of a test before may still spin.
	becomes := func(f func() bool, why string) { require.Eventually(t, f, 10*time.Second, time.Millisecond, why) }
	l := testLink()
	l.hdr.post(3)
	becomes(l.linger, "there is something already")
	assert.False(t, l.lingering.missed)

	// Where nothing comes, it ends, and soon is not tried any more but now and then.
	l = testLink()
	tried := 0
	for range 2 * probeEvery {
		l.lingering.until = 0
		before := l.lingering.score
		assert.False(t, l.linger())
		if s := l.lingering.score; s.n != before.n || s.missed != before.missed || s.misses == before.misses {
			tried++
		}
	}
	assert.LessOrEqual(t, tried, 4)

	l = testLink()
	becomes(spin.Begin, "nobody spins")
	l.hdr.post(3)
	assert.False(t, l.linger(), "somebody else spins")
	assert.False(t, spin.Begin(), "and still does")
	spin.End()

	runtime.GOMAXPROCS(1)
	assert.False(t, l.linger(), "there is one processor")
	runtime.GOMAXPROCS(2)
	becomes(l.linger, "there are two")

	l = testLink()
	l.hdr.post(3)
	l.lingering.until = math.MaxInt64
	becomes(l.linger, "what is there is seen without a yield")
	l = testLink()
	l.lingering.until = math.MaxInt64
	assert.False(t, l.linger())
	assert.False(t, l.lingering.missed, "nothing was tried")
}
