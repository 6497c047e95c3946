package session

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A flow of small writes is gathered into few messages, none of which asks for credits, and the next tick sends what is left.
func TestFlow(t *testing.T) {
	d := newDuo(t, noGrow(), noGrow())
	c := d.c[0]
	c.ticks = true
	sent := c.stats.MessagesSent
	const n = 1000
	var got []byte
	for pos := range n {
		require.Equal(t, 1, d.write(0, stream(0, pos, 1)))
		if pos%100 == 99 {
			d.settle()
			got = append(got, d.read(1, n)...)
		}
	}
	assert.True(t, c.flow)
	assert.NotEmpty(t, c.held)
	assert.Less(t, c.stats.MessagesSent-sent, uint64(n/10))
	d.settle()
	assert.NotEmpty(t, c.held, "credits alone do not flush it")
	assert.False(t, d.c[1].peerWant)
	got = append(got, d.read(1, n)...)
	assert.False(t, c.tick(), "too little for a flow")
	d.settle()
	assert.Empty(t, c.held)
	assert.Equal(t, stream(0, 0, n), append(got, d.read(1, n)...))
	d.finish()
}

// A flow that goes on is ticked again; what cannot leave for want of credits leaves when they come.
func TestFlowGoesOn(t *testing.T) {
	d := newDuo(t, fakeAttr(), fakeAttr())
	c := d.c[0]
	c.ticks = true
	var got, want []byte
	write := func(n int) {
		p := stream(0, len(want), n)
		for len(p) > 0 {
			m := d.write(0, p)
			p = p[m:]
			if m == 0 {
				d.settle()
				got = append(got, d.read(1, 1<<20)...)
				d.settle()
			}
		}
		want = append(want, stream(0, len(want), n)...)
	}
	for len(want) < 2*flowBytes {
		write(100)
	}
	require.True(t, c.flow)
	assert.True(t, c.tick())
	write(1)
	assert.False(t, c.tick(), "one byte is none")
	assert.False(t, c.flow)
	for len(got) < len(want) {
		d.settle()
		p := d.read(1, 1<<20)
		require.NotEmpty(t, p, "stuck")
		got = append(got, p...)
	}
	assert.Equal(t, want, got)
	d.finish()
}

// A large write does not wait behind gathered ones, and goes the way that it would go without them.
func TestFlowEndsWithALargeWrite(t *testing.T) {
	d := newDuo(t, noGrow(), noGrow())
	c := d.c[0]
	c.ticks = true
	for pos := range 20 {
		d.write(0, stream(0, pos, 1))
	}
	require.True(t, c.flow)
	d.settle()
	got := d.read(1, 100)
	d.settle()
	require.NotEmpty(t, c.held)
	c.endFlow()
	assert.Empty(t, c.held)
	d.settle()
	assert.Equal(t, stream(0, 0, 20), append(got, d.read(1, 100)...))
	d.finish()
}
