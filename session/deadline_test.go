package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestDeadline(t *testing.T) {
	var d deadline
	d.set(time.Time{})
	assert.False(t, d.expired())
	for _, far := range []time.Time{time.Now().Add(time.Hour), time.Unix(1<<60, 0), time.Now().Add(1<<63 - 1)} {
		d.set(far)
		assert.False(t, d.expired(), far)
	}
	for _, past := range []time.Time{time.Now(), time.Unix(1, 0), time.Now().Add(-1 << 63), time.Unix(-1<<60, 0)} {
		d.set(past)
		assert.True(t, d.expired(), past)
	}
}

// A deadline may be noticed late, but is never early.
func TestDeadlineIsNotEarly(t *testing.T) {
	for range 100_000 {
		var d deadline
		at := time.Now().Add(time.Hour)
		d.set(at)
		if early := time.Duration(int64(at.Sub(clockBase)) - d.at.Load()); early > 0 {
			t.Fatalf("%v early", early)
		}
	}
}
