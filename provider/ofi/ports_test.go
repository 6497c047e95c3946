package ofi

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCarrier(t *testing.T) {
	carries := make(map[uint16]int)
	for p := 1; p < 1<<16; p++ {
		c := carrier(uint16(p))
		if c == uint16(p) || c < 1024 {
			t.Fatalf("port %d is carried by %d", p, c)
		}
		carries[c]++
	}
	require.Equal(t, uint16(32848), carrier(80))
	require.Equal(t, uint16(16384), carrier(49152))
	for c, n := range carries {
		if n > 2 {
			t.Fatalf("port %d carries %d ports", c, n)
		}
	}
	for range 1000 {
		p := anyPort()
		require.GreaterOrEqual(t, p, uint16(49152))
		require.Less(t, carrier(p), uint16(32768))
	}
}
