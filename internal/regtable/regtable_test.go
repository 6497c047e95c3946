package regtable

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"sansock/provider"
)

func TestWithin(t *testing.T) {
	b := make([]byte, 100)
	for _, c := range []struct {
		outer, inner []byte
		off          int
		ok           bool
	}{
		{b, b, 0, true},
		{b, b[10:20], 10, true},
		{b, b[99:], 99, true},
		{b, b[100:], 0, true}, // empty
		{b, nil, 0, true},
		{b[10:20], b[9:12], 0, false},
		{b[10:20], b[10:21], 0, false},
		{b[10:20], b[19:21], 0, false},
		{b[10:20], b[20:21], 0, false},
		{b[10:20:20], b[15:20], 5, true},
		{nil, b[:1], 0, false},
		{b, make([]byte, 10), 0, false},
	} {
		off, ok := within(c.outer, c.inner)
		require.Equal(t, c.ok, ok)
		require.Equal(t, c.off, off)
	}
}

// TestHandles: no handle comes twice, nor means anything to a table with another salt.
func TestHandles(t *testing.T) {
	tab, other := Table{Salt: 0x1234567890}, Table{Salt: 0x987654321}
	mem := make([]byte, 8)
	seen := map[provider.Handle]bool{0: true}
	for range 1000 {
		i, r, ok := tab.Add(mem, 0)
		require.True(t, ok)
		require.False(t, seen[r.Handle])
		seen[r.Handle] = true
		require.Equal(t, i, tab.Find(r.Handle))
		other.Add(mem, 0)
		require.EqualValues(t, None, other.Find(r.Handle))
		require.Equal(t, 1, tab.Len())
		tab.Remove(i)
		require.EqualValues(t, None, tab.Find(r.Handle))
	}
	require.Len(t, tab.Slots, 1)
	require.Zero(t, tab.Len())
}

func TestSlotsRetire(t *testing.T) {
	var tab Table
	mem := make([]byte, 1)
	_, _, ok := tab.Add(mem, 0)
	require.True(t, ok)
	tab.Slots[0].gen = maxGeneration - 1
	tab.Remove(0)
	i, r, ok := tab.Add(mem, 0)
	require.True(t, ok)
	require.EqualValues(t, 1, i)
	require.EqualValues(t, 1, tab.Find(r.Handle))

	// A salt that would make the zero Handle costs a generation.
	tab = Table{Salt: 1 << indexBits}
	_, r, _ = tab.Add(mem, 0)
	require.NotZero(t, r.Handle)
	require.Zero(t, tab.Find(r.Handle))
	require.EqualValues(t, None, tab.Find(0))
}

// TestRevoked: a slot that is not free is of no use either.
func TestRevoked(t *testing.T) {
	var tab Table
	i, r, _ := tab.Add(make([]byte, 8), provider.RightRead)
	_, ok := tab.Remote(Words(&r.Descriptor), provider.RightRead, 0, 8)
	require.True(t, ok)
	tab.Slots[i].State = Revoked
	_, ok = tab.Remote(Words(&r.Descriptor), provider.RightRead, 0, 8)
	require.False(t, ok)
	require.EqualValues(t, None, tab.Find(r.Handle))
	require.Equal(t, 1, tab.Len())
}

// FuzzDescriptor has a peer send any descriptor, offset and length: nothing but the real descriptor within its bounds reaches
// memory.
func FuzzDescriptor(f *testing.F) {
	var tab Table
	mem := make([]byte, 64)
	tab.Add(mem, 0)
	slot, gone, _ := tab.Add(mem, provider.RightWrite)
	_, real, _ := tab.Add(mem, provider.RightWrite)
	tab.Remove(slot)
	for _, d := range []provider.Descriptor{real.Descriptor, gone.Descriptor, {}} {
		f.Add(d[:], uint64(0), 64)
		f.Add(d[:], uint64(60), 5)
		f.Add(d[:], ^uint64(0), 2)
	}
	f.Fuzz(func(t *testing.T, b []byte, off uint64, n int) {
		var d provider.Descriptor
		copy(d[:], b)
		n = max(n, 0)
		_, write := tab.Remote(Words(&d), provider.RightWrite, off, n)
		_, read := tab.Remote(Words(&d), provider.RightRead, off, n)
		require.False(t, read)
		require.Equal(t, bytes.Equal(d[:], real.Descriptor[:]) && off <= 64 && uint64(n) <= 64-off, write)
	})
}
