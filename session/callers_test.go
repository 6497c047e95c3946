package session

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCallers(t *testing.T) {
	var l callers
	left := map[*caller]bool{}
	enter := func(host byte) *caller {
		c := &caller{host: netip.AddrFrom4([4]byte{10, 0, 0, host})}
		c.leave = func() { left[c] = true }
		l.enter(c)
		return c
	}
	first := enter(1)
	right := enter(2)
	var many []*caller
	for range 3 * maxCallers {
		many = append(many, enter(3))
	}
	assert.Len(t, l.list, maxCallers)
	assert.False(t, left[first] || left[right], "others take the place of their own")
	n := len(many) - maxCallers + 2
	for i, c := range many {
		assert.Equal(t, i < n, left[c], i)
	}
	assert.False(t, l.know(many[n-1]), "its time is over")
	assert.True(t, l.know(right))

	// Whoever is known stays, wherever he is.
	known := many[n]
	assert.True(t, l.know(known))
	for range 3 * maxCallers {
		enter(3)
		enter(2)
	}
	assert.False(t, left[known] || left[right])
	assert.Len(t, l.list, maxCallers)
	l.exit(known)
	l.exit(known)
	l.exit(many[0])
	assert.Len(t, l.list, maxCallers-1)
}
