//go:build ofi && cgo && linux

package ofi

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sansock/internal/spin"
	"sansock/provider"
)

// TestScore has misses make tries rare, and one hit make them frequent again.
func TestScore(t *testing.T) {
	var s score
	require.Equal(t, spinTime, s.limit())
	s.note(false)
	for _, waits := range []int{32, 64, 128, 256, 512, 1024, 1024} {
		for range waits {
			require.Zero(t, s.limit())
		}
		require.Equal(t, probeTime, s.limit())
		s.note(false)
	}
	s.wait = 0
	require.Equal(t, probeTime, s.limit())
	s.note(true)
	require.Equal(t, spinTime, s.limit())
	for range 10 {
		s.note(true)
	}
	for range 3 {
		s.note(false)
	}
	require.Zero(t, s.limit())
	for range probeFirst - 1 {
		require.Zero(t, s.limit())
	}
	require.Equal(t, probeTime, s.limit())
}

// TestSpin finds by spinning what has been sent, also on an endpoint that nobody polls otherwise, and nothing when the
// endpoint is closed.
func TestSpin(t *testing.T) {
	p := opened(t)
	a, b := connected(t, p)
	in, err := b.Allocate(16)
	require.NoError(t, err)
	x, err := b.Extension(provider.GUIDSpinner)
	require.NoError(t, err)
	look := x.(provider.Spinner).Spin
	for range 3 * spin.SoloWaits {
		require.False(t, look())
	}
	for i := range uint64(3 * probeFirst) {
		require.NoError(t, b.PostRecv(provider.Recv{Context: i, Buffer: in.Segment(0, 16)}))
		require.NoError(t, a.PostSend(provider.Send{Inline: [2][]byte{{byte(i)}}}))
		if look() {
			var c [2]provider.Completion
			require.Equal(t, 1, b.Poll(c[:]))
			require.Equal(t, provider.Completion{Context: i, Op: provider.OpRecv, Len: 1}, c[0])
		} else {
			require.Equal(t, provider.Completion{Context: i, Op: provider.OpRecv, Len: 1}, next(t, b))
		}
		require.Equal(t, byte(i), in.Bytes[0])
	}
	require.False(t, look())
	require.NoError(t, b.Close())
	for range 3 * spin.SoloWaits {
		require.False(t, look())
	}
	require.NoError(t, b.Deregister(in.Handle))
}
