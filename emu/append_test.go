package emu

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/provider"
)

// grower is the extension of an end.
func (x *end) grower() provider.Appender {
	a, err := x.Extension(provider.GUIDAppender)
	require.NoError(x.t, err)
	return a.(provider.Appender)
}

// open sends a message that may grow.
func (x *end) open(s string) {
	m := inline(s)
	m.Open = true
	require.NoError(x.t, x.PostSend(m))
}

func TestAppendEndsGrowth(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		do     func(x, y *end, r provider.Region)
	}{
		"the peer's own completion behind it": {do: func(_, y *end, _ provider.Region) {
			seg := y.local([]byte("back"))
			require.NoError(t, y.PostSend(provider.Send{Local: seg}))
		}},
		"its receive is deregistered": {do: func(_, y *end, r provider.Region) {
			require.NoError(t, y.Deregister(r.Handle))
		}},
		"a long message is on its way": {do: func(x, _ *end, _ provider.Region) {
			x.Endpoint.(*endpoint).peer.rq.copying = true
			t.Cleanup(func() { x.Endpoint.(*endpoint).peer.rq.copying = false })
		}},
		"the link swallows everything": {do: func(x, _ *end, _ provider.Region) { DropLink(x.Endpoint) }},
		"the link is cut":              {do: func(x, _ *end, _ provider.Region) { CutLink(x.Endpoint) }},
	} {
		t.Run(name, func(t *testing.T) {
			x, y := pair(t, c.config)
			x.receives(1, 16)
			r := y.receives(1, 64)
			x.open("hello")
			require.True(t, x.grower().Append([]byte(", world")))
			c.do(x, y, r)
			before := bytes.Clone(r.Bytes)
			require.False(t, x.grower().Append([]byte("!")))
			require.Equal(t, before, r.Bytes)
			x.Endpoint.(*endpoint).peer.rq.copying = false
			require.Equal(t, provider.Completion{Op: provider.OpRecv, Len: 12}, y.next())
		})
	}
}

// TestAppendLate appends to a message that is not reported yet, and not to one that is.
func TestAppendLate(t *testing.T) {
	x, y := both(t, Config{}, Config{Completions: Completions{Delay: time.Hour, Batch: 2}})
	r := y.receives(2, 64)
	x.open("one")
	require.True(t, x.grower().Append([]byte(" and a half")))
	assert.Empty(t, y.all())
	x.open("two")
	assert.Equal(t, []provider.Completion{{Op: provider.OpRecv, Len: 14}, {Context: 1, Op: provider.OpRecv, Len: 3}}, y.all())
	assert.Equal(t, "one and a half", string(r.Bytes[:14]))
	assert.False(t, x.grower().Append([]byte("!")))
}

// TestAppendLong appends to a message that was copied without the lock. What would itself be copied
// so is a message.
func TestAppendLong(t *testing.T) {
	x, y := pair(t, Config{})
	const long = copyUnderLock + 1
	r := y.receives(1, 4*long)
	want := bytes.Repeat([]byte("a"), long)
	seg := x.local(want)
	require.NoError(t, x.PostSend(provider.Send{Local: seg, Open: true}))
	assert.False(t, x.grower().Append(want))
	want = append(want, bytes.Repeat([]byte("b"), long-1)...)
	assert.True(t, x.grower().Append(want[long:]))
	assert.Equal(t, provider.Completion{Op: provider.OpRecv, Len: len(want)}, y.next())
	assert.Equal(t, want, r.Bytes[:len(want)])
}

// TestNoAppend: the extension is left out where that is asked for, and where knobs would not see
// what is appended.
func TestNoAppend(t *testing.T) {
	for _, c := range []Config{
		{NoAppend: true}, {Link: Link{Latency: time.Nanosecond}}, {Faults: Faults{Hook: func(Step) error { return nil }}},
	} {
		x, y := pair(t, c)
		_, err := x.Extension(provider.GUIDAppender)
		assert.Equal(t, provider.StatusUnsupported, err)
		y.receives(1, 64)
		x.open("hello")
		assert.Equal(t, provider.Completion{Op: provider.OpRecv, Len: 5}, y.next())
	}
}
