package session

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTuner(t *testing.T) {
	feed := func(copyNs, moveNs int64) int {
		u := tuner{base: 16 << 10}
		assert.Zero(t, u.threshold())
		for i := range tuneWindow {
			// All but one of the samples are disturbed.
			u.copied(8<<10, copyNs+int64(i%7)*1000)
			u.moved(16<<10, moveNs+int64(i%5)*10000)
		}
		return u.threshold()
	}
	// 8 KiB copied in 400 ns is 1/20.48 ns a byte; 16 KiB take 800 of the 1600 ns.
	assert.Equal(t, 16384, feed(400, 1600))
	assert.Equal(t, 32768, feed(400, 2400))
	assert.Equal(t, 64<<10, feed(400, 100000), "at most four times the preference")
	assert.Equal(t, 8<<10, feed(400, 500), "at least half of it")
	assert.Equal(t, 64<<10, feed(0, 1000), "free copies")
}

func TestTunerFixed(t *testing.T) {
	var u tuner
	for range 100 {
		assert.False(t, u.timesCopy(1<<20))
	}
	assert.False(t, u.timesMove(1))
}

func TestTunerSamplesFew(t *testing.T) {
	u := tuner{base: 16 << 10}
	n := 0
	for range 10 * tuneEvery {
		if u.timesCopy(8 << 10) {
			n++
		}
	}
	assert.Equal(t, 10, n)
	assert.False(t, u.timesCopy(100), "small writes say nothing about bytes")
}
