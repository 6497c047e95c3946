package emu

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/provider"
)

func TestMessagesArriveInOrder(t *testing.T) {
	x, y := pair(t, Config{})
	r := y.receives(3, 16)
	x.say("one")
	require.NoError(t, x.PostSend(provider.Send{Inline: [2][]byte{[]byte("t"), []byte("wo")}}))
	seg := x.local([]byte("three"))
	require.NoError(t, x.PostSend(provider.Send{Context: 9, Local: seg}))

	require.Equal(t, []provider.Completion{
		{Context: 0, Op: provider.OpRecv, Len: 3},
		{Context: 1, Op: provider.OpRecv, Len: 3},
		{Context: 2, Op: provider.OpRecv, Len: 5},
	}, y.all())
	require.Equal(t, "one", string(r.Bytes[0:3]))
	require.Equal(t, "two", string(r.Bytes[16:19]))
	require.Equal(t, "three", string(r.Bytes[32:37]))
	require.Equal(t, []provider.Completion{{Context: 9, Op: provider.OpSend}}, x.all())
}

func TestLongMessages(t *testing.T) {
	// Longer than what is copied under the lock, from several goroutines: each whole, and
	// completions in the order of the receives.
	x, y := pair(t, Config{})
	const n, size = 64, 3 * copyUnderLock
	r := y.receives(n, size)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			m := make([]byte, size-i%2*(size-8)) // long and short ones
			for j := range m {
				m[j] = byte(i)
			}
			assert.NoError(t, x.PostSend(provider.Send{Inline: [2][]byte{m[:4], m[4:]}}))
		})
	}
	wg.Wait()
	seen := map[byte]bool{}
	for i := range n {
		c := y.next()
		require.EqualValues(t, i, c.Context)
		m := r.Bytes[i*size:][:c.Len]
		for _, b := range m {
			require.Equal(t, m[0], b)
		}
		seen[m[0]] = true
	}
	require.Len(t, seen, n)
}

func TestFirstMessageIsHeld(t *testing.T) {
	x, y := pair(t, Config{})
	first := make([]byte, provider.MaxFirstMessage)
	first[0], first[255] = 1, 2
	require.NoError(t, x.PostSend(provider.Send{Inline: [2][]byte{first}, Solicited: true}))
	clear(first) // it may be used again at once
	require.Empty(t, y.all())
	require.False(t, y.Arm(provider.WakeSolicited))
	r := y.receives(2, 256)
	<-y.wake
	require.Equal(t, []provider.Completion{{Op: provider.OpRecv, Len: 256}}, y.all())
	require.EqualValues(t, 1, r.Bytes[0])
	require.EqualValues(t, 2, r.Bytes[255])
	x.say("second")
	require.Equal(t, []provider.Completion{{Context: 1, Op: provider.OpRecv, Len: 6}}, y.all())
}

func TestViolationsEndTheConnection(t *testing.T) {
	long := make([]byte, provider.MaxFirstMessage+1)
	for name, c := range map[string]struct {
		prepare func(y *end)
		offend  func(x *end) error
		status  provider.Status
		victim  []provider.Completion // before the end
	}{
		"first message too long": {
			offend: func(x *end) error { return x.PostSend(provider.Send{Context: 5, Inline: [2][]byte{long}}) },
			status: provider.StatusNotReady,
		},
		"second message without receive": {
			offend: func(x *end) error {
				x.say("held")
				return x.PostSend(provider.Send{Context: 5, Inline: [2][]byte{[]byte("x")}})
			},
			status: provider.StatusNotReady,
		},
		"late message without receive": {
			prepare: func(y *end) { y.receives(1, 8) },
			offend: func(x *end) error {
				x.say("received")
				return x.PostSend(provider.Send{Context: 5, Inline: [2][]byte{[]byte("x")}})
			},
			status: provider.StatusNotReady,
			victim: []provider.Completion{{Op: provider.OpRecv, Len: 8}},
		},
		"late message without receive, after a registered one": {
			prepare: func(y *end) { y.receives(1, 8) },
			offend: func(x *end) error {
				require.NoError(x.t, x.PostSend(provider.Send{Local: x.local([]byte("first"))}))
				require.Len(x.t, x.all(), 1)
				return x.PostSend(provider.Send{Context: 5, Inline: [2][]byte{[]byte("x")}})
			},
			status: provider.StatusNotReady,
			victim: []provider.Completion{{Op: provider.OpRecv, Len: 5}},
		},
		"longer than the receive": {
			prepare: func(y *end) { y.receives(2, 4) },
			offend:  func(x *end) error { return x.PostSend(provider.Send{Context: 5, Inline: [2][]byte{[]byte("12345")}}) },
			status:  provider.StatusTooLong,
			victim: []provider.Completion{{Op: provider.OpRecv, Status: provider.StatusTooLong},
				{Context: 1, Op: provider.OpRecv, Status: provider.StatusAborted}},
		},
		"registered, longer than the receive": {
			prepare: func(y *end) { y.receives(1, 4) },
			offend: func(x *end) error {
				return x.PostSend(provider.Send{Context: 5, Local: x.local([]byte("12345"))})
			},
			status: provider.StatusTooLong,
			victim: []provider.Completion{{Op: provider.OpRecv, Status: provider.StatusTooLong}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			x, y := pair(t, Config{})
			if c.prepare != nil {
				c.prepare(y)
			}
			require.NoError(t, c.offend(x))
			require.Equal(t, []provider.Completion{
				{Context: 5, Op: provider.OpSend, Status: c.status},
				{Op: provider.OpDisconnect, Status: c.status},
			}, x.all())
			require.Equal(t, append(c.victim, provider.Completion{Op: provider.OpDisconnect, Status: c.status}), y.all())
			require.Equal(t, provider.StatusDisconnected, x.PostSend(inline("x")))
			require.Equal(t, provider.StatusDisconnected, y.PostSend(inline("x")))
		})
	}
}

func TestHeldMessageTooLong(t *testing.T) {
	x, y := pair(t, Config{})
	x.say("longer than four")
	y.receives(1, 4)
	require.Equal(t, []provider.Completion{
		{Op: provider.OpRecv, Status: provider.StatusTooLong},
		{Op: provider.OpDisconnect, Status: provider.StatusTooLong},
	}, y.all())
	require.Equal(t, []provider.Completion{{Op: provider.OpDisconnect, Status: provider.StatusTooLong}}, x.all())
}

func TestLimits(t *testing.T) {
	x, y := pair(t, Config{MaxRecvs: 2, MaxSends: 2, MaxRDMAs: 2, MaxMessage: 512, MaxInline: 16, MaxRDMA: 64})
	mem := make([]byte, 1024)
	seg := x.local(mem)
	y.receives(2, 512)

	require.Equal(t, provider.StatusTooLong, x.PostSend(provider.Send{Inline: [2][]byte{mem[:10], mem[:7]}}))
	require.Equal(t, provider.StatusTooLong, x.PostSend(provider.Send{Local: provider.Segment{Bytes: mem[:513], Handle: seg.Handle}}))
	d := y.expose(make([]byte, 1024), provider.RightWrite|provider.RightRead).Descriptor
	require.Equal(t, provider.StatusTooLong, x.PostWrite(provider.RDMA{Local: provider.Segment{Bytes: mem[:65]}, Remote: d}))
	require.Equal(t, provider.StatusTooLong, x.reader().PostRead(provider.RDMA{Local: provider.Segment{Bytes: mem[:65]}, Remote: d}))

	// A completion counts until it is polled.
	send := provider.Send{Local: provider.Segment{Bytes: mem[:512], Handle: seg.Handle}}
	require.NoError(t, x.PostSend(send))
	require.NoError(t, x.PostSend(send))
	require.Equal(t, provider.StatusQueueFull, x.PostSend(send))
	require.Len(t, x.all(), 2)
	rdma := provider.RDMA{Local: provider.Segment{Bytes: mem[:64]}, Remote: d}
	require.NoError(t, x.PostWrite(rdma))
	require.NoError(t, x.reader().PostRead(rdma))
	require.Equal(t, provider.StatusQueueFull, x.PostWrite(rdma))
	require.Equal(t, provider.StatusQueueFull, x.reader().PostRead(rdma))
	require.Len(t, x.all(), 2)
	require.NoError(t, x.PostWrite(rdma))

	r := y.local(make([]byte, 8))
	require.Equal(t, provider.StatusQueueFull, y.PostRecv(provider.Recv{Buffer: r}))
	require.Len(t, y.all(), 2)
	require.NoError(t, y.PostRecv(provider.Recv{Buffer: r}))
	require.True(t, errors.Is(provider.StatusQueueFull, syscall.ENOBUFS))
}

func TestNoInline(t *testing.T) {
	x, y := pair(t, Config{MaxInline: -1})
	require.Zero(t, x.Attributes().MaxInline)
	y.receives(2, 8)
	require.Equal(t, provider.StatusTooLong, x.PostSend(inline("x")))
	require.NoError(t, x.PostSend(inline(""))) // nothing at all is no longer than 0
	require.NoError(t, x.PostSend(provider.Send{Local: x.local([]byte("x"))}))
	require.Len(t, y.all(), 2)
}

func TestWake(t *testing.T) {
	x, y := pair(t, Config{})
	y.receives(8, 8)
	silent := provider.Send{Inline: [2][]byte{[]byte("x")}}
	woken := func() bool {
		select {
		case <-y.wake:
			return true
		default:
			return false
		}
	}

	x.say("x")
	require.False(t, woken(), "not armed")
	require.True(t, y.Arm(provider.WakeAny), "there is one already")
	require.True(t, y.Arm(provider.WakeSolicited))
	require.False(t, y.Arm(provider.WakeNone))
	require.Len(t, y.all(), 1)

	require.False(t, y.Arm(provider.WakeSolicited))
	require.NoError(t, x.PostSend(silent))
	require.False(t, woken())
	require.False(t, y.Arm(provider.WakeSolicited), "not one of those that are waiting")
	x.say("x")
	require.True(t, woken())
	x.say("x")
	require.False(t, woken(), "once per arming")
	require.True(t, y.Arm(provider.WakeSolicited))
	require.Len(t, y.all(), 3)

	require.False(t, y.Arm(provider.WakeAny))
	require.NoError(t, x.PostSend(silent))
	require.True(t, woken())
	require.Len(t, y.all(), 1)

	require.False(t, y.Arm(provider.WakeAny))
	require.False(t, y.Arm(provider.WakeNone), "replaces")
	x.say("x")
	require.False(t, woken())
	require.Len(t, y.all(), 1)

	require.False(t, y.Arm(provider.WakeSolicited))
	x.Close()
	require.True(t, woken(), "the end is always worth it")
	require.True(t, y.Arm(provider.WakeSolicited))
	require.Len(t, y.all(), 3)
	require.False(t, y.Arm(provider.WakeAny))
}

func TestClose(t *testing.T) {
	x, y := pair(t, Config{})
	x.receives(2, 8)
	y.receives(3, 8)
	x.say("last")
	require.NoError(t, x.Close())
	require.NoError(t, x.Close())

	require.Equal(t, []provider.Completion{
		{Context: 0, Op: provider.OpRecv, Status: provider.StatusAborted},
		{Context: 1, Op: provider.OpRecv, Status: provider.StatusAborted},
	}, x.all())
	require.Equal(t, []provider.Completion{
		{Context: 0, Op: provider.OpRecv, Len: 4},
		{Context: 1, Op: provider.OpRecv, Status: provider.StatusAborted},
		{Context: 2, Op: provider.OpRecv, Status: provider.StatusAborted},
		{Op: provider.OpDisconnect, Status: provider.StatusDisconnected},
	}, y.all())

	mem := make([]byte, 8)
	for name, post := range map[string]func(e *end) error{
		"recv":  func(e *end) error { return e.PostRecv(provider.Recv{}) },
		"send":  func(e *end) error { return e.PostSend(inline("x")) },
		"local": func(e *end) error { return e.PostSend(provider.Send{Local: provider.Segment{Bytes: mem}}) },
		"write": func(e *end) error { return e.PostWrite(provider.RDMA{Local: provider.Segment{Bytes: mem}}) },
		"read":  func(e *end) error { return e.reader().PostRead(provider.RDMA{Local: provider.Segment{Bytes: mem}}) },
	} {
		require.Equal(t, provider.StatusClosed, post(x), name)
		require.ErrorIs(t, post(x), net.ErrClosed)
		require.Equal(t, provider.StatusDisconnected, post(y), name)
	}
	_, err := x.Allocate(8)
	require.Equal(t, provider.StatusClosed, err)
	_, err = x.Register(mem)
	require.Equal(t, provider.StatusClosed, err)
	_, err = y.Register(mem)
	require.NoError(t, err, "the other end is only disconnected")
	y.Close()
	require.Empty(t, y.all())
	require.Empty(t, x.all())
}

func TestMemoryAfterClose(t *testing.T) {
	p := open(t, Config{Memory: Memory{MaxRegistrations: 3}})
	x, _ := connected(t, p, p)
	common, err := x.Allocate(8)
	require.NoError(t, err)
	common.Bytes[3] = 7
	reg := x.local(make([]byte, 8))
	exp := x.expose(make([]byte, 8), provider.RightRead)
	x.Close()
	require.EqualValues(t, 7, common.Bytes[3])
	require.Equal(t, 1, p.proxy.count, "only common memory remains")
	require.NoError(t, x.Deregister(common.Handle))
	require.NoError(t, x.Deregister(reg.Handle))
	require.NoError(t, x.Deregister(exp.Handle))
	require.Equal(t, provider.StatusAccess, x.Deregister(exp.Handle))
	require.Zero(t, p.proxy.count)
	require.Zero(t, p.proxy.bytes)
}

// TestNoWakeAfterClose closes an endpoint while its peer sends to it.
func TestNoWakeAfterClose(t *testing.T) {
	p := open(t, Config{})
	for range 300 {
		x, y := connected(t, p, p)
		y.receives(64, 8)
		var mu sync.Mutex
		closed := false
		y.OnWake(func() {
			mu.Lock()
			defer mu.Unlock()
			assert.False(t, closed)
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 64 {
				if x.PostSend(inline("x")) != nil {
					return
				}
			}
		})
		wg.Go(func() {
			for range 64 {
				y.Arm(provider.WakeAny)
			}
		})
		y.Close()
		mu.Lock()
		closed = true
		mu.Unlock()
		wg.Wait()
		x.Close()
	}
}

// TestManyAtOnce drives one connection from many goroutines until it is cut, closed, or breaks, and
// counts: every operation that was posted completes exactly once, and the end comes last.
func TestManyAtOnce(t *testing.T) {
	for i := range 12 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			a := Config{}
			if i%3 == 2 {
				a.Link.Latency = 1
			}
			p := open(t, a)
			ends := [2]*end{}
			ends[0], ends[1] = connected(t, p, p)
			var mu sync.Mutex
			posted, done := [2]map[uint64]int{{}, {}}, [2]map[uint64]int{{}, {}}
			var id uint64
			post := func(side int, f func(ctx uint64) error) bool {
				mu.Lock()
				id++
				ctx := id
				posted[side][ctx]++
				mu.Unlock()
				err := f(ctx)
				if err != nil {
					mu.Lock()
					delete(posted[side], ctx)
					mu.Unlock()
				}
				return err == nil || err == provider.StatusQueueFull
			}
			const area = 8 << 10 // every goroutine has its own to write, and they share one to read
			var descs [2]provider.Descriptor
			for k, e := range ends {
				descs[k] = e.expose(make([]byte, 4*area), provider.RightRead|provider.RightWrite).Descriptor
			}
			var wg, polling sync.WaitGroup
			for k, e := range ends {
				bufs := e.local(make([]byte, 4<<10))
				for range 200 {
					post(k, func(c uint64) error { return e.PostRecv(provider.Recv{Context: c, Buffer: bufs}) })
				}
				read := e.reader()
				for g := range 3 {
					wg.Go(func() {
						rnd := rand.New(rand.NewPCG(uint64(i), uint64(g)))
						src, dst := e.local(make([]byte, area)), e.local(make([]byte, area))
						part := func(s provider.Segment, n int) provider.Segment {
							return provider.Segment{Bytes: s.Bytes[:n], Handle: s.Handle}
						}
						for range 60 {
							n := rnd.IntN(area)
							ok := post(k, func(c uint64) error {
								if rnd.IntN(2) == 0 {
									return read.PostRead(provider.RDMA{Context: c, Local: part(dst, n), Remote: descs[1-k]})
								}
								return e.PostWrite(provider.RDMA{Context: c, Local: part(src, n), Remote: descs[1-k],
									Offset: uint64((g + 1) * area)})
							}) && post(k, func(c uint64) error {
								return e.PostSend(provider.Send{Context: c, Solicited: true, Local: part(src, rnd.IntN(4<<10))})
							}) && post(k, func(c uint64) error {
								return e.PostRecv(provider.Recv{Context: c, Buffer: bufs})
							})
							if !ok {
								return
							}
						}
					})
				}
				polling.Go(func() {
					for c := e.next(); ; c = e.next() {
						mu.Lock()
						if c.Op == provider.OpDisconnect {
							mu.Unlock()
							return
						}
						done[k][c.Context]++
						mu.Unlock()
					}
				})
			}
			if i%2 == 0 {
				wg.Wait() // else cut short
			}
			require.True(t, CutLink(ends[0].Endpoint))
			wg.Wait()
			polling.Wait()
			for k, e := range ends {
				require.Empty(t, e.all())
				require.Equal(t, posted[k], done[k])
				require.NoError(t, e.Close())
			}
			require.Equal(t, Stats{}, p.Stats())
		})
	}
}

func TestDialWithEndedContext(t *testing.T) {
	p := open(t, Config{})
	l, err := p.Listen(loopback, 1)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = p.Dial(ctx, loopback, l.Addr())
	require.ErrorIs(t, err, context.Canceled)
	var e *provider.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, "dial", e.Op)
}

func TestNoAllocation(t *testing.T) {
	x, y := pair(t, Config{})
	r := y.receives(4, 64<<10)
	msg := make([]byte, 64<<10)
	exposed := y.expose(make([]byte, 64<<10), provider.RightRead|provider.RightWrite)
	seg, read := x.local(msg), x.reader()
	var c [4]provider.Completion
	for name, f := range map[string]func(){
		"inline": func() {
			y.Arm(provider.WakeAny)
			x.PostSend(provider.Send{Inline: [2][]byte{msg[:20], msg[:100]}})
		},
		"long":       func() { x.PostSend(provider.Send{Inline: [2][]byte{msg[:20], msg[:40000]}}) },
		"registered": func() { x.PostSend(provider.Send{Local: seg}) },
		"write":      func() { x.PostWrite(provider.RDMA{Local: seg, Remote: exposed.Descriptor}) },
		"read":       func() { read.PostRead(provider.RDMA{Local: seg, Remote: exposed.Descriptor}) },
		"expose": func() {
			e, _ := x.Expose(msg, provider.RightRead)
			x.Deregister(e.Handle)
		},
		"refused": func() { x.PostSend(provider.Send{Local: provider.Segment{Bytes: msg, Handle: 1}}) },
	} {
		require.Zero(t, testing.AllocsPerRun(100, func() {
			f()
			for _, c := range c[:y.Poll(c[:])] {
				y.PostRecv(provider.Recv{Context: c.Context, Buffer: r.Segment(int(c.Context)*64<<10, 64<<10)})
			}
			x.Poll(c[:])
		}), name)
	}
}
