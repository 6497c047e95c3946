//go:build linux

package shm

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/provider"
)

// open sends a message that may grow.
func (x *end) open(b []byte) {
	require.NoError(x.t, x.PostSend(provider.Send{Inline: [2][]byte{b}, Solicited: true, Open: true}))
}

// core is the endpoint itself.
func (x *end) core() *endpoint { return x.Endpoint.(*endpoint) }

// appendPair is a connection on which one message has gone each way, and nobody is armed.
func appendPair(t testing.TB) (x, y *end) {
	s := openSAN(t, Config{Space: space(t)})
	x, y = pair(t, s, s)
	for _, e := range []*end{x, y} {
		e.Arm(provider.WakeNone)
	}
	return x, y
}

// TestAppendRounds appends while the counters wrap: a taken message does not look new in the next
// round.
func TestAppendRounds(t *testing.T) {
	x, y := appendPair(t)
	const start = 1<<32 - 3*slots - 5
	for _, e := range []*end{x, y} {
		for i := range slots {
			e.core().in.events[i].Store(lap(start - slots))
			e.core().in.descs[i].Store(lap(start - slots))
		}
	}
	x.core().out.given, y.core().in.taken = start, start
	x.core().out.sent, y.core().in.posted = start, start
	r := y.receives(4, 64)
	for i := range 8 * slots {
		k := uint64(i % 4)
		m := fmt.Appendf(nil, "message %d", i)
		x.open(m)
		for range i % 3 {
			require.True(t, x.core().Append([]byte("...")))
			m = append(m, "..."...)
		}
		require.Equal(t, provider.Completion{Op: provider.OpRecv, Context: k, Len: len(m)}, y.next())
		require.Equal(t, string(m), string(r.Bytes[k*64:][:len(m)]))
		require.Zero(t, y.Poll(y.buf[:]), "a message that was taken is taken again")
		require.False(t, x.core().Append([]byte("!")))
		require.NoError(t, y.PostRecv(provider.Recv{Context: k, Buffer: r.Segment(int(k)*64, 64)}))
	}
}

// TestAppendBounce appends to a message that goes into memory which is not shared.
func TestAppendBounce(t *testing.T) {
	x, y := appendPair(t)
	mem := make([]byte, 64)
	r, err := y.Register(mem)
	require.NoError(t, err)
	for i := range 5 {
		require.NoError(t, y.PostRecv(provider.Recv{Buffer: r.Segment(10, 20)}))
		m := fmt.Appendf(nil, "message %d", i)
		x.open(m)
		require.True(t, x.core().Append([]byte(", more")))
		require.False(t, x.core().Append([]byte("too much")))
		require.Equal(t, provider.Completion{Op: provider.OpRecv, Len: len(m) + 6}, y.next())
		require.Equal(t, string(m)+", more", string(mem[10:10+len(m)+6]))
		require.Equal(t, make([]byte, 64-30), mem[30:], "behind the receive")
	}
}

// TestAppendQuarantine: memory in which the peer may still be writing, behind a message that was
// taken, is nobody else's before the peer's next event.
func TestAppendQuarantine(t *testing.T) {
	x, y := appendPair(t)
	e := y.core()
	first := y.receives(1, 1000)
	x.open([]byte("hello"))
	require.Equal(t, provider.OpRecv, y.next().Op)
	other, err := y.Allocate(1000)
	require.NoError(t, err)
	require.NoError(t, y.Deregister(first.Handle))
	require.NoError(t, y.Deregister(other.Handle))
	again, err := y.Allocate(1000)
	require.NoError(t, err)
	require.Same(t, &other.Bytes[0], &again.Bytes[0], "what the peer has no business with is free at once")
	again, err = y.Allocate(1000)
	require.NoError(t, err)
	require.NotSame(t, &first.Bytes[0], &again.Bytes[0])
	require.Len(t, e.mem.stale, 1)

	y.receives(1, 64)
	x.say("the peer is done with it")
	require.Equal(t, provider.OpRecv, y.next().Op)
	require.Empty(t, e.mem.stale)
	again, err = y.Allocate(1000)
	require.NoError(t, err)
	require.Same(t, &first.Bytes[0], &again.Bytes[0])

	// At the end nothing is left, though no event came.
	last := y.receives(1, 3000)
	x.open([]byte("hello"))
	require.Equal(t, provider.OpRecv, y.next().Op)
	require.NoError(t, y.Deregister(last.Handle))
	require.Len(t, e.mem.stale, 1)
	l := e.l
	require.NoError(t, x.Close())
	require.Equal(t, provider.OpDisconnect, y.next().Op)
	e.mu.Lock()
	assert.Empty(t, e.mem.stale)
	e.mu.Unlock()
	l.arena.mu.Lock()
	defer l.arena.mu.Unlock()
	assert.NotEmpty(t, l.arena.free[rounded(3000)])
}

// TestUnread looks at what the peer would find after the death of this process.
func TestUnread(t *testing.T) {
	x, y := appendPair(t)
	y.receives(6, 64)
	will := func() provider.Status {
		x.core().mu.Lock()
		defer x.core().mu.Unlock()
		return x.core().will()
	}
	check := func(unread bool, when string) {
		t.Helper()
		want := provider.StatusExited
		if unread {
			want = provider.StatusExitedUnread
		}
		require.Equal(t, want, will(), when)
	}
	check(false, "at first")
	x.say("not open")
	check(false, "a message that is not open")
	require.Equal(t, provider.OpRecv, y.next().Op)
	x.open([]byte("open"))
	check(true, "an open message is not taken")
	x.say("not open")
	check(true, "an open message is not taken, and is not the last")
	require.Equal(t, provider.OpRecv, y.next().Op)
	check(false, "it was polled")
	require.Equal(t, provider.OpRecv, y.next().Op)
	y.core().Unread(true)
	check(true, "the application has not read it")
	y.core().Unread(true)
	check(true, "the application has not read it, and says so again")
	y.core().Unread(false)
	check(false, "the application has read it")

	x.open([]byte("one"))
	x.open([]byte("two"))
	require.True(t, y.Arm(provider.WakeAny))
	check(true, "two are taken ahead of Poll")
	require.Equal(t, 1, y.Poll(y.buf[:]))
	check(true, "one of two was polled")
	require.Equal(t, 1, y.Poll(y.buf[:]))
	check(false, "both were polled")
	y.Close()
	y.core().Unread(true)
	check(false, "after Close")
}

// TestNonsenseOpen has a peer use the flag where it makes no sense.
func TestNonsenseOpen(t *testing.T) {
	for name, bad := range map[string]func(e *endpoint){
		"beyond the receive": func(e *endpoint) { e.rawFlag(evMessage, 0, 65, open) },
		"beyond everything":  func(e *endpoint) { e.rawFlag(evMessage, 0, -1, open) },
		"a message without a receive": func(e *endpoint) {
			e.rawFlag(evMessage, 0, 1, open)
			e.rawFlag(evMessage, 0, 1, open)
			e.rawFlag(evMessage, 0, 1, open)
		},
		"a first message":            func(e *endpoint) { e.rawFlag(evHeld, 0, 1, open) },
		"a message that is too long": func(e *endpoint) { e.rawFlag(evTooLong, 0, 1, open) },
		"a request":                  func(e *endpoint) { e.rawFlag(evRequest, 0, 1, open) },
		"an answer":                  func(e *endpoint) { e.rawFlag(evAnswer, 0, 1, open) },
		"an end":                     func(e *endpoint) { e.rawFlag(evFin, 0, 1, open) },
		"nothing":                    func(e *endpoint) { e.rawFlag(0, 0, 1, open) },
	} {
		t.Run(name, func(t *testing.T) {
			v, e, peer, _ := target(t)
			e.receives(2, 64)
			bad(peer)
			for _, c := range e.ends() {
				require.LessOrEqual(t, c.Len, 64)
			}
			v.alive(t)
		})
	}
}

// TestAppendChanging has a peer change the word of an open message all the time: what counts is
// what was taken, and that is checked.
func TestAppendChanging(t *testing.T) {
	v, e, peer, _ := target(t)
	r := e.receives(16, 64)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			peer.mu.Lock()
			if peer.over() {
				peer.mu.Unlock()
				return
			}
			n := []int{1, 64, 65, math.MaxInt32}[i%4]
			if i%1000 == 0 {
				n = 3
			}
			peer.out.events[0].Store(packEvent([]kind{evMessage, evMessage, evHeld}[i%3], 0, n, open, 0))
			peer.l.post(peer.id)
			peer.mu.Unlock()
		}
	}()
	for {
		c := e.next()
		require.LessOrEqual(t, c.Len, 64)
		if c.Op == provider.OpDisconnect {
			break
		}
		if c.Status == provider.StatusOK {
			e.PostRecv(provider.Recv{Context: c.Context, Buffer: r.Segment(int(c.Context)*64, 64)})
			break
		}
	}
	close(stop)
	<-done
	v.alive(t)
}

// TestAppendHostileReceiver has a peer that does not keep to what an open message is: it says that
// it was taken, or makes it longer or shorter, or goes on to say that there is room. The sender
// writes within the receive that it saw.
func TestAppendHostileReceiver(t *testing.T) {
	v, e, peer, _ := target(t)
	r, err := peer.Allocate(7 * 64)
	require.NoError(t, err)
	for i := range 6 {
		require.NoError(t, peer.PostRecv(provider.Recv{Buffer: r.Segment(i*64, 64)}))
	}
	at := func() *atomic.Uint64 { return &peer.in.events[(e.core().out.given-1)%slots] }
	for i, change := range []func(w uint64) uint64{
		func(uint64) uint64 { return 0 },
		func(w uint64) uint64 { return w + 1 },
		func(w uint64) uint64 { return w - 1 },
		func(w uint64) uint64 { return w &^ open },
		func(w uint64) uint64 { return w | 0xffffffff },
	} {
		e.open([]byte{1})
		require.True(t, e.core().Append([]byte{2}))
		w := at().Load()
		at().Store(change(w))
		require.False(t, e.core().Append([]byte{3}), "%d", i)
		at().Store(w)
		require.False(t, e.core().Append([]byte{3}), "%d: it was seen to be taken", i)
	}
	e.open([]byte{1})
	last := ptr(peer.table.Slots[peer.table.Find(r.Handle)].Place) + 5*64
	peer.in.descs[e.core().out.sent-1].Store(packDesc(last, maxMessage, e.core().out.sent-1)) // when it has been used
	for e.core().Append(bytes.Repeat([]byte{9}, 10)) {
	}
	require.Equal(t, make([]byte, 64), r.Bytes[6*64:])
	v.alive(t)
}

func TestAppendAllocations(t *testing.T) {
	x, y := appendPair(t)
	r := y.receives(1, 1<<10)
	b := make([]byte, 64)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if !x.core().Append(b) {
			for y.Poll(y.buf[:]) > 0 {
				y.core().Unread(true)
				y.core().Unread(false)
				y.PostRecv(provider.Recv{Buffer: r.Segment(0, len(r.Bytes))})
			}
			x.PostSend(provider.Send{Inline: [2][]byte{b}, Open: true})
		}
	}))
}

// tally has as many receives as credits, reads a stream whose length is the first message, and
// answers with its checksum.
func tally(next func(*end) provider.Completion) func(*san, provider.Listener) error {
	return func(_ *san, l provider.Listener) error {
		for {
			ep, err := accept(l)
			if err != nil {
				return err
			}
			go func() {
				e := newEnd(nil, ep)
				defer e.Close()
				const window, size = 16, 1000
				r, err := e.Allocate(window * size)
				if err != nil {
					return
				}
				post := func(i uint64) { e.PostRecv(provider.Recv{Context: i, Buffer: r.Segment(int(i)*size, size)}) }
				grant := func() { e.PostSend(provider.Send{Inline: [2][]byte{{1}}, Solicited: true}) }
				for i := range uint64(window) {
					post(i)
				}
				h := crc32.NewIEEE()
				for left := -1; left != 0; {
					c := next(e)
					if c.Status != provider.StatusOK || c.Op != provider.OpRecv {
						return
					}
					m := r.Bytes[int(c.Context)*size:][:c.Len]
					if left < 0 {
						left = int(binary.LittleEndian.Uint64(m)) // now the peer has receives
						for range window - 1 {
							grant()
						}
					} else {
						h.Write(m)
						left -= len(m)
					}
					post(c.Context)
					grant()
				}
				e.PostSend(provider.Send{Inline: [2][]byte{h.Sum(nil)}, Solicited: true})
				for next(e).Op != provider.OpDisconnect {
				}
			}()
		}
	}
}

// TestAppendAcross streams small pieces to another process, which waits in different ways.
func TestAppendAcross(t *testing.T) {
	total := 20 << 20
	if raced || testing.Short() {
		total = 2 << 20
	}
	for _, role := range []string{"tally", "tally spinning", "tally parked"} {
		t.Run(role, func(t *testing.T) {
			p := start(t, role, space(t))
			s := openSAN(t, Config{Space: space(t)})
			ep, err := s.Dial(context.Background(), netip.AddrPort{}, p.addr)
			require.NoError(t, err)
			defer ep.Close()
			e := newEnd(t, ep)
			const window = 32
			r := e.receives(window, 8)
			credits := 0
			credit := func() []byte {
				c := e.next()
				require.Equal(t, provider.OpRecv, c.Op)
				m := append([]byte(nil), r.Bytes[c.Context*8:][:c.Len]...)
				require.NoError(t, e.PostRecv(provider.Recv{Context: c.Context, Buffer: r.Segment(int(c.Context)*8, 8)}))
				if len(m) == 1 {
					credits++
				}
				return m
			}
			require.NoError(t, e.PostSend(provider.Send{Inline: [2][]byte{binary.LittleEndian.AppendUint64(nil, uint64(total))}}))
			h := crc32.NewIEEE()
			sent, messages, x := 0, 0, uint32(1)
			b := make([]byte, 64)
			for sent < total {
				n := min(64, total-sent)
				x = x*1664525 + 1013904223
				binary.LittleEndian.PutUint32(b, x)
				h.Write(b[:n])
				sent += n
				if e.core().Append(b[:n]) {
					continue
				}
				for credits == 0 {
					credit()
				}
				credits--
				messages++
				e.open(b[:n])
			}
			sum := credit()
			for len(sum) != 4 {
				sum = credit()
			}
			require.Equal(t, h.Sum(nil), sum)
			t.Logf("%d messages for %d pieces", messages, (total+63)/64)
		})
	}
}
