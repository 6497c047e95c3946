package emu

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/provider"
)

func TestRDMA(t *testing.T) {
	x, y := pair(t, Config{})
	mem := []byte("0123456789")
	r := y.expose(mem, provider.RightRead|provider.RightWrite)
	require.NoError(t, x.PostWrite(provider.RDMA{Context: 1, Local: provider.Segment{Bytes: []byte("ab")}, Remote: r.Descriptor, Offset: 8}))
	require.Equal(t, "01234567ab", string(mem))
	got := make([]byte, 3)
	require.NoError(t, x.reader().PostRead(provider.RDMA{Context: 2, Local: provider.Segment{Bytes: got}, Remote: r.Descriptor, Offset: 7}))
	require.Equal(t, "7ab", string(got))
	require.NoError(t, x.PostWrite(provider.RDMA{Context: 3, Remote: r.Descriptor, Offset: 10})) // nothing, at the very end
	require.Equal(t, []provider.Completion{
		{Context: 1, Op: provider.OpWrite}, {Context: 2, Op: provider.OpRead}, {Context: 3, Op: provider.OpWrite},
	}, x.all())
	require.Empty(t, y.all(), "the owner does not notice")
}

func TestBigRDMA(t *testing.T) {
	x, y := pair(t, Config{})
	const size = largeRDMA + 2*largeRDMAPiece + 5
	src := make([]byte, size)
	for i := range src {
		src[i] = byte(i * 7 >> 3)
	}
	mem := make([]byte, size)
	r := y.expose(mem, provider.RightWrite)
	require.NoError(t, x.PostWrite(provider.RDMA{Local: provider.Segment{Bytes: src}, Remote: r.Descriptor}))
	require.True(t, string(src) == string(mem))
}

// TestRefusals forges every part of a descriptor, and uses real ones where and when they do not
// hold.
func TestRefusals(t *testing.T) {
	all := provider.RightRead | provider.RightWrite
	for name, c := range map[string]struct {
		rights provider.Rights
		op     provider.Op
		off    uint64
		n      int
		forge  func(x, y *end, r *provider.Region)
	}{
		"key":            {all, provider.OpWrite, 0, 4, func(x, y *end, r *provider.Region) { r.Descriptor[3] ^= 1 }},
		"slot":           {all, provider.OpWrite, 0, 4, func(x, y *end, r *provider.Region) { r.Descriptor[8]++ }},
		"absurd slot":    {all, provider.OpRead, 0, 4, func(x, y *end, r *provider.Region) { r.Descriptor[15] = 0xff }},
		"generation":     {all, provider.OpRead, 0, 4, func(x, y *end, r *provider.Region) { r.Descriptor[16]++ }},
		"zero":           {all, provider.OpRead, 0, 4, func(x, y *end, r *provider.Region) { r.Descriptor = provider.Descriptor{} }},
		"no right write": {provider.RightRead, provider.OpWrite, 0, 4, nil},
		"no right read":  {provider.RightWrite, provider.OpRead, 0, 4, nil},
		"too far":        {all, provider.OpWrite, 5, 4, nil},
		"outside":        {all, provider.OpRead, 9, 0, nil},
		"wrapping":       {all, provider.OpRead, ^uint64(0) - 1, 4, nil},
		"deregistered":   {all, provider.OpWrite, 0, 4, func(x, y *end, r *provider.Region) { y.Deregister(r.Handle) }},
		"slot used again": {all, provider.OpWrite, 0, 4, func(x, y *end, r *provider.Region) {
			y.Deregister(r.Handle)
			y.expose(r.Bytes, all)
		}},
		"own memory": {all, provider.OpWrite, 0, 4, func(x, y *end, r *provider.Region) {
			y.Deregister(r.Handle)
			*r = x.expose(r.Bytes, all)
		}},
		"other connection": {all, provider.OpWrite, 0, 4, func(x, y *end, r *provider.Region) {
			y.Deregister(r.Handle)
			_, other := connected(t, x.Endpoint.(*endpoint).prov, x.Endpoint.(*endpoint).prov)
			*r = other.expose(r.Bytes, all)
		}},
		"local registration only": {all, provider.OpWrite, 0, 4, func(x, y *end, r *provider.Region) {
			y.Deregister(r.Handle)
			d := r.Descriptor
			*r, _ = y.Register(r.Bytes)
			r.Descriptor = d
			r.Descriptor[16]++ // the same slot
		}},
	} {
		t.Run(name, func(t *testing.T) {
			x, y := pair(t, Config{})
			mem := []byte("secretxx")
			r := y.expose(mem, c.rights)
			if c.forge != nil {
				c.forge(x, y, &r)
			}
			got := make([]byte, c.n)
			op := provider.RDMA{Context: 3, Local: provider.Segment{Bytes: got}, Remote: r.Descriptor, Offset: c.off}
			if c.op == provider.OpRead {
				require.NoError(t, x.reader().PostRead(op))
			} else {
				require.NoError(t, x.PostWrite(op))
			}
			require.Equal(t, "secretxx", string(mem))
			require.Equal(t, make([]byte, c.n), got)
			// As on hardware, the connection ends, so that a peer has one guess.
			require.Equal(t, []provider.Completion{
				{Context: 3, Op: c.op, Status: provider.StatusAccess},
				{Op: provider.OpDisconnect, Status: provider.StatusAccess},
			}, x.all())
			require.Equal(t, []provider.Completion{{Op: provider.OpDisconnect, Status: provider.StatusAccess}}, y.all())
		})
	}
}

func TestNoAccessAfterTheEnd(t *testing.T) {
	for name, finish := range map[string]func(x, y *end){
		"closed by the owner": func(x, y *end) { y.Close() },
		"closed by the peer":  func(x, y *end) { x.Close() },
		"cut":                 func(x, y *end) { CutLink(x.Endpoint) },
		"lost":                func(x, y *end) { DropLink(y.Endpoint) },
	} {
		t.Run(name, func(t *testing.T) {
			x, y := pair(t, Config{})
			mem := []byte("safe")
			r := y.expose(mem, provider.RightWrite)
			finish(x, y)
			err := x.PostWrite(provider.RDMA{Local: provider.Segment{Bytes: []byte("evil")}, Remote: r.Descriptor})
			require.Equal(t, name == "lost", err == nil)
			require.Equal(t, "safe", string(mem))
		})
	}
}

func TestLocalSegments(t *testing.T) {
	x, y := pair(t, Config{LocalRegistration: true})
	require.True(t, x.Attributes().LocalRegistration)
	mem := make([]byte, 64)
	seg := x.local(mem[8:16])
	foreign := y.local(mem)
	d := y.expose(make([]byte, 64), provider.RightRead|provider.RightWrite).Descriptor
	for name, bad := range map[string]provider.Segment{
		"none":     {Bytes: mem[8:16]},
		"unknown":  {Bytes: mem[8:16], Handle: seg.Handle + 1},
		"foreign":  {Bytes: mem[8:16], Handle: foreign.Handle},
		"below":    {Bytes: mem[7:10], Handle: seg.Handle},
		"above":    {Bytes: mem[12:17], Handle: seg.Handle},
		"far away": {Bytes: make([]byte, 4), Handle: seg.Handle},
	} {
		require.Equal(t, provider.StatusLocal, x.PostRecv(provider.Recv{Buffer: bad}), name)
		require.Equal(t, provider.StatusLocal, x.PostSend(provider.Send{Local: bad}), name)
		require.Equal(t, provider.StatusLocal, x.PostWrite(provider.RDMA{Local: bad, Remote: d}), name)
		require.Equal(t, provider.StatusLocal, x.reader().PostRead(provider.RDMA{Local: bad, Remote: d}), name)
		require.Empty(t, x.all())
	}
	require.NoError(t, x.PostWrite(provider.RDMA{Local: seg, Remote: d}))
	require.NoError(t, x.Deregister(seg.Handle))
	require.Equal(t, provider.StatusLocal, x.PostWrite(provider.RDMA{Local: seg, Remote: d}))
}

func TestHandles(t *testing.T) {
	x, y := pair(t, Config{})
	seen := map[provider.Handle]bool{0: true}
	mem := make([]byte, 8)
	for range 10000 {
		r := x.expose(mem, provider.RightRead)
		require.False(t, seen[r.Handle])
		seen[r.Handle] = true
		require.Equal(t, provider.StatusAccess, y.Deregister(r.Handle), "another endpoint's")
		require.NoError(t, x.Deregister(r.Handle))
		require.Equal(t, provider.StatusAccess, x.Deregister(r.Handle))
	}
	require.Equal(t, provider.StatusAccess, x.Deregister(0))
	require.LessOrEqual(t, len(x.Endpoint.(*endpoint).table.Slots), 1, "slots are used again")
}

func TestBusy(t *testing.T) {
	x, y := pair(t, Config{})
	r := y.receives(1, 8)
	require.Equal(t, provider.StatusBusy, y.Deregister(r.Handle))
	x.say("x")
	require.NoError(t, y.Deregister(r.Handle), "its receive has completed")

	r = y.receives(1, 8)
	x.Close()
	require.NoError(t, y.Deregister(r.Handle), "cut short is complete, too")
}

func TestRights(t *testing.T) {
	x, _ := pair(t, Config{})
	for _, r := range []provider.Rights{0, 4, 7} {
		_, err := x.Expose(make([]byte, 1), r)
		require.ErrorIs(t, err, errors.ErrUnsupported)
	}
}

func TestNoRDMARead(t *testing.T) {
	with, without := both(t, Config{}, Config{NoRDMARead: true})
	a := without.Attributes()
	require.False(t, a.RDMARead)
	require.False(t, a.RDMAReadable)
	_, err := without.Extension(provider.GUIDRDMARead)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = without.Expose(make([]byte, 8), provider.RightRead)
	require.Equal(t, provider.StatusUnsupported, err)
	_, err = without.Expose(make([]byte, 8), provider.RightRead|provider.RightWrite)
	require.Equal(t, provider.StatusUnsupported, err)
	r := without.expose(make([]byte, 8), provider.RightWrite)
	require.NoError(t, with.PostWrite(provider.RDMA{Local: provider.Segment{Bytes: []byte("x")}, Remote: r.Descriptor}))
	require.EqualValues(t, 'x', r.Bytes[0])

	for _, id := range []provider.GUID{provider.GUIDCacheCallback, {}, {1}} {
		_, err = with.Extension(id)
		require.ErrorIs(t, err, errors.ErrUnsupported)
	}
}

// TestDeregisterWaits ends registrations while the peer reads and writes them: when Deregister has
// returned, the memory belongs to its owner again, which the race detector and the bytes prove.
func TestDeregisterWaits(t *testing.T) {
	p := open(t, Config{})
	const size = 64 << 10
	for range 30 {
		x, y := connected(t, p, p)
		mem := make([]byte, size)
		r := y.expose(mem, provider.RightRead|provider.RightWrite)
		var wg sync.WaitGroup
		started := make(chan struct{})
		wg.Go(func() {
			src := bytes.Repeat([]byte{1}, size)
			close(started)
			for range 100 {
				if x.PostWrite(provider.RDMA{Local: provider.Segment{Bytes: src}, Remote: r.Descriptor}) != nil ||
					x.next().Status != provider.StatusOK {
					return
				}
			}
		})
		<-started
		require.NoError(t, y.Deregister(r.Handle))
		copy(mem, bytes.Repeat([]byte{2}, size))
		wg.Wait()
		require.Equal(t, size, bytes.Count(mem, []byte{2}), "written after Deregister")
		x.Close()
		y.Close()
	}
}

// TestCloseWaitsForAccess is the same for Close, of either end.
func TestCloseWaitsForAccess(t *testing.T) {
	p := open(t, Config{})
	for i := range 40 {
		x, y := connected(t, p, p)
		size := 256 << 10
		theirs, ours := make([]byte, size), make([]byte, size)
		r := y.expose(theirs, provider.RightRead|provider.RightWrite)
		read := x.reader()
		var wg sync.WaitGroup
		started := make(chan struct{})
		wg.Go(func() {
			close(started)
			for k := range 100 {
				op := provider.RDMA{Local: provider.Segment{Bytes: ours}, Remote: r.Descriptor}
				var err error
				if k%2 == 0 {
					err = x.PostWrite(op)
				} else {
					err = read.PostRead(op)
				}
				if err != nil {
					return
				}
				x.Poll(make([]provider.Completion, 4))
			}
		})
		<-started
		closer, mine := x, ours
		if i%2 == 0 {
			closer, mine = y, theirs
		}
		require.NoError(t, closer.Close())
		copy(mine, bytes.Repeat([]byte{3}, size))
		wg.Wait()
		require.Equal(t, size, bytes.Count(mine, []byte{3}), "touched after Close")
		x.Close()
		y.Close()
	}
}

// TestManyRegistrations uses one endpoint's table from many goroutines.
func TestManyRegistrations(t *testing.T) {
	x, y := pair(t, Config{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			got := make([]byte, 100)
			for i := range 300 {
				mem := make([]byte, 100)
				mem[0] = byte(i)
				r, err := y.Expose(mem, provider.RightRead)
				assert.NoError(t, err)
				op := provider.RDMA{Local: provider.Segment{Bytes: got}, Remote: r.Descriptor}
				if x.Endpoint.(*endpoint).PostRead(op) == nil {
					assert.Equal(t, byte(i), got[0])
				}
				x.Poll(make([]provider.Completion, 1))
				assert.NoError(t, y.Deregister(r.Handle))
			}
		})
	}
	wg.Wait()
	require.Zero(t, y.Endpoint.(*endpoint).table.Len())
}
