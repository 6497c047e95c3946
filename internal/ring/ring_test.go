package ring

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestOrder pushes and pops in turns, while the positions wrap.
func TestOrder(t *testing.T) {
	r := Ring[int]{head: math.MaxUint32 - 5}
	in, out := 0, 0
	for round := range 40 {
		for range round % 7 {
			r.Push(in)
			in++
		}
		for i := range r.Len() {
			assert.Equal(t, out+i, *r.At(i))
		}
		if r.Len() > 0 {
			assert.Equal(t, out, *r.Front())
			assert.Equal(t, in-1, *r.Back())
		}
		for range min(r.Len(), round%5) {
			assert.Equal(t, out, r.Pop())
			out++
		}
	}
	assert.Equal(t, in-out, r.Len())
}

// TestForgets looks for what was dropped in the memory of the ring.
func TestForgets(t *testing.T) {
	var r Ring[*int]
	r.Push(new(int))
	r.Push(new(int))
	r.Pop()
	r.Drop()
	assert.Zero(t, r.Len())
	for _, p := range r.buf {
		assert.Nil(t, p)
	}
}

func TestKeepsMemory(t *testing.T) {
	var r Ring[int]
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		for i := range 4 {
			r.Push(i)
		}
		for range 4 {
			r.Skip()
		}
	}))
}
