package bubble

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestID(t *testing.T) {
	assert.Zero(t, ID())
	seen := make(map[uint64]bool)
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			id := ID()
			assert.NotZero(t, id)
			assert.False(t, seen[id], "each bubble has its own")
			seen[id] = true
			time.Sleep(24 * time.Hour)
			assert.Equal(t, id, ID())
			inside := make(chan uint64)
			go func() { inside <- ID() }()
			assert.Equal(t, id, <-inside)
			time.AfterFunc(time.Hour, func() { inside <- ID() })
			assert.Equal(t, id, <-inside)
		})
		assert.Zero(t, ID())
	}
}

func TestParse(t *testing.T) {
	for stack, want := range map[string]uint64{
		"goroutine 7 [running]:\nmain.main()":                                   0,
		"goroutine 7 [running, synctest bubble 12]:\nmain.main()":               12,
		"goroutine 7 [running, synctest bubble 12 (durable), locked to thread]": 12,
		"goroutine 7 [running]:\nsynctest bubble 3":                             0,
		"": 0,
	} {
		assert.Equal(t, want, parse([]byte(stack)), stack)
	}
}

func BenchmarkID(b *testing.B) {
	for b.Loop() {
		ID()
	}
}
