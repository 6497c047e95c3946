package emu

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"sansock/provider"
)

// FuzzDescriptor has a peer send any descriptor, offset and length: nothing but the real descriptor within its bounds reaches
// memory.
func FuzzDescriptor(f *testing.F) {
	var tab table
	mem := make([]byte, 64)
	tab.add(0, mem, 0, false)
	gone, _ := tab.add(0, mem, provider.RightWrite, false)
	real, _ := tab.add(0, mem, provider.RightWrite, false)
	tab.remove(1)
	for _, d := range []provider.Descriptor{real.Descriptor, gone.Descriptor, {}} {
		f.Add(d[:], uint64(0), 64)
		f.Add(d[:], uint64(60), 5)
		f.Add(d[:], ^uint64(0), 2)
	}
	f.Fuzz(func(t *testing.T, b []byte, off uint64, n int) {
		var d provider.Descriptor
		copy(d[:], b)
		n = max(n, 0)
		_, write := tab.remote(&d, provider.RightWrite, off, n)
		_, read := tab.remote(&d, provider.RightRead, off, n)
		require.False(t, read)
		require.Equal(t, bytes.Equal(d[:], real.Descriptor[:]) && off <= 64 && uint64(n) <= 64-off, write)
	})
}
