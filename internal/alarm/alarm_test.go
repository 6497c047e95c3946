package alarm

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a Alarm
		var at []time.Duration
		start := time.Now()
		ring := func() { at = append(at, time.Since(start)) }
		a.Stop() // never set
		assert.False(t, a.Again(time.Second))
		a.Set(time.Second, ring)
		a.Set(3*time.Second, ring) // moves it
		time.Sleep(4 * time.Second)
		synctest.Wait()
		a.Set(time.Second, ring)
		a.Stop()
		time.Sleep(4 * time.Second)
		synctest.Wait()
		assert.True(t, a.Again(time.Second))
		time.Sleep(4 * time.Second)
		synctest.Wait()
		assert.Equal(t, []time.Duration{3 * time.Second, 9 * time.Second}, at)
	})
}
