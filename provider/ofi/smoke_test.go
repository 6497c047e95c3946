//go:build ofi && cgo && linux

package ofi

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sansock/provider"
)

// next waits for the next completion.
func next(t testing.TB, ep provider.Endpoint) provider.Completion {
	t.Helper()
	var c [1]provider.Completion
	for limit := time.Now().Add(20 * time.Second); time.Now().Before(limit); time.Sleep(50 * time.Microsecond) {
		if ep.Poll(c[:]) == 1 {
			return c[0]
		}
	}
	t.Fatal("no completion")
	return provider.Completion{}
}

func TestSmoke(t *testing.T) {
	p := opened(t)
	t.Log(p)
	a, b := connected(t, p)
	in, err := b.Allocate(100)
	require.NoError(t, err)
	require.NoError(t, b.PostRecv(provider.Recv{Context: 7, Buffer: in.Segment(0, 50)}))
	require.NoError(t, b.PostRecv(provider.Recv{Context: 8, Buffer: in.Segment(50, 50)}))
	require.NoError(t, a.PostSend(provider.Send{Inline: [2][]byte{[]byte("he"), []byte("llo")}}))
	require.Equal(t, provider.Completion{Context: 7, Op: provider.OpRecv, Len: 5}, next(t, b))
	require.Equal(t, "hello", string(in.Bytes[:5]))

	out, err := a.Register([]byte("world"))
	require.NoError(t, err)
	target := make([]byte, 1000)
	exposed, err := b.Expose(target, provider.RightRead|provider.RightWrite)
	require.NoError(t, err)
	require.NoError(t, a.PostWrite(provider.RDMA{Context: 9, Local: out.Segment(0, 5), Remote: exposed.Descriptor, Offset: 3}))
	require.Equal(t, provider.Completion{Context: 9, Op: provider.OpWrite}, next(t, a))
	require.NoError(t, a.PostSend(provider.Send{Context: 10, Local: out.Segment(0, 5)}))
	require.Equal(t, provider.Completion{Context: 10, Op: provider.OpSend}, next(t, a))
	require.Equal(t, provider.Completion{Context: 8, Op: provider.OpRecv, Len: 5}, next(t, b))
	require.Equal(t, "world", string(target[3:8]))

	x, err := a.Extension(provider.GUIDRDMARead)
	require.NoError(t, err)
	back, err := a.Allocate(8)
	require.NoError(t, err)
	read := provider.RDMA{Context: 11, Local: back.Segment(0, 8), Remote: exposed.Descriptor}
	require.NoError(t, x.(provider.RDMAReader).PostRead(read))
	require.Equal(t, provider.Completion{Context: 11, Op: provider.OpRead}, next(t, a))
	require.Equal(t, "\x00\x00\x00world", string(back.Bytes))
	require.NoError(t, b.Deregister(exposed.Handle))

	require.NoError(t, a.Close())
	require.Equal(t, provider.Completion{Op: provider.OpDisconnect, Status: provider.StatusDisconnected}, next(t, b))
	require.NoError(t, a.Deregister(out.Handle))
	require.NoError(t, a.Deregister(back.Handle))
	require.NoError(t, b.Deregister(in.Handle))
}
