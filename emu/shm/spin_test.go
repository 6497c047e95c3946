//go:build linux

package shm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Where yields give the core to somebody who computes, they are tried more and more rarely; after quiet times as often as
// at first.
func TestGuard(t *testing.T) {
	until, length := spinning.guard.Load(), spinning.pause.Load()
	defer func() {
		spinning.guard.Store(until)
		spinning.pause.Store(length)
	}()
	spinning.guard.Store(0)
	spinning.pause.Store(0)
	now := time.Hour
	for want := guardFirst; ; want *= 2 {
		guard(now)
		want = min(want, guardLast)
		assert.Equal(t, now+want, time.Duration(spinning.guard.Load()))
		now += want + 4*time.Millisecond // what a yield takes then
		if want == guardLast {
			break
		}
	}
	now += guardMemory*guardLast + 1
	guard(now)
	assert.Equal(t, now+guardFirst, time.Duration(spinning.guard.Load()))
}
