package spin

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestElection(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	var a, b Waiter
	assert.NotSame(t, &a, &b)
	for range SoloWaits { // the first one makes it the last
		assert.Equal(t, Queue, a.Wait())
		assert.False(t, a.Alone())
	}
	assert.Equal(t, Spin, a.Wait())
	assert.True(t, a.Alone())
	assert.Equal(t, Look, a.Wait(), "it does not spin twice")
	assert.False(t, Begin())
	End()
	assert.True(t, Begin())
	assert.Equal(t, Look, a.Wait())
	End()

	assert.Equal(t, Queue, b.Wait(), "another one comes")
	assert.False(t, a.Alone())
	for range 3 * SoloWaits { // they wait in turns
		assert.Equal(t, Queue, a.Wait())
		assert.Equal(t, Queue, b.Wait())
	}

	b.Favour()
	assert.True(t, b.Alone())
	assert.Equal(t, Spin, b.Wait())
	End()
	b.Forget()
	assert.False(t, b.Alone())
	assert.Equal(t, Queue, b.Wait())
	a.Forget() // which is not the last
	assert.Equal(t, Queue, b.Wait())
	for range SoloWaits {
		b.Wait()
	}
	assert.True(t, b.Alone())
	End()
	b.Forget()
}

func TestOneProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var a Waiter
	assert.False(t, Begin())
	a.Favour()
	defer a.Forget()
	assert.Equal(t, Look, a.Wait())
	runtime.GOMAXPROCS(2)
	for range procsEvery {
		if a.Wait() == Spin {
			End()
			return
		}
	}
	t.Error("the second processor goes unnoticed")
}

func TestPin(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	var a, b Waiter
	undo := a.Pin()
	for range 3 * SoloWaits {
		assert.Equal(t, Queue, b.Wait())
	}
	b.Favour()
	assert.True(t, a.Alone())
	assert.Equal(t, Spin, a.Wait())
	End()
	b.Pin()
	assert.True(t, b.Alone())
	a.Pin()
	assert.True(t, a.Alone())
	undo()
	assert.Equal(t, Queue, b.Wait())
	assert.False(t, a.Alone())
	b.Forget()
}

// TestOneSpins has many try, and no two spin at a time.
func TestOneSpins(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	var spinning atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			var w Waiter
			defer w.Forget()
			for range 2000 {
				if i%2 == 0 && w.Wait() == Spin || i%2 == 1 && Begin() {
					assert.EqualValues(t, 1, spinning.Add(1))
					spinning.Add(-1)
					End()
				}
			}
		})
	}
	wg.Wait()
}
