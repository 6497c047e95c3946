package emu

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/provider"
)

// failing opens a provider whose steps in fail, which may be changed, fail.
func failing(t *testing.T, fail map[Step]error) *Provider {
	return open(t, Config{Faults: Faults{Hook: func(s Step) error { return fail[s] }}})
}

func TestFaultsOfConnections(t *testing.T) {
	fail := map[Step]error{}
	p := failing(t, fail)
	l, err := p.Listen(loopback, 1)
	require.NoError(t, err)
	for _, s := range []Step{StepPrefixes, StepListen, StepDial, StepRequest} {
		fail[s] = provider.StatusNoMemory
		switch s {
		case StepPrefixes:
			_, err = p.Prefixes()
		case StepListen:
			_, err = p.Listen(loopback, 1)
		case StepDial:
			_, err = p.Dial(context.Background(), loopback, l.Addr())
		case StepRequest:
			_, err = l.Accept()
		}
		statusOf(t, provider.StatusNoMemory, err)
		delete(fail, s)
	}
	for s, want := range map[Step]struct{ dial, accept error }{
		StepDialComplete:   {provider.StatusTimeout, nil},
		StepAccept:         {provider.StatusLink, provider.StatusTimeout},
		StepAcceptComplete: {nil, provider.StatusTimeout},
	} {
		fail[s] = provider.StatusTimeout
		var wg sync.WaitGroup
		var accepted, dialed provider.Endpoint
		var aerr error
		wg.Go(func() { accepted, aerr = accept(l) })
		dialed, err := p.Dial(context.Background(), loopback, l.Addr())
		wg.Wait()
		require.Equal(t, want.dial == nil, err == nil, "%v: %v", s, err)
		require.Equal(t, want.accept == nil, aerr == nil, "%v: %v", s, aerr)
		for _, e := range []provider.Endpoint{dialed, accepted} {
			if e != nil { // the one that succeeded hears that it was in vain
				require.Equal(t, []provider.Completion{{Op: provider.OpDisconnect, Status: provider.StatusDisconnected}},
					newEnd(t, e).all())
				e.Close()
			}
		}
		if err != nil {
			require.ErrorIs(t, err, want.dial)
		}
		if aerr != nil {
			require.ErrorIs(t, aerr, want.accept)
		}
		delete(fail, s)
	}
	require.Equal(t, Stats{Listeners: 1}, p.Stats())
	require.Empty(t, p.fabric.conns)
}

func TestFaultsOfEndpoints(t *testing.T) {
	fail := map[Step]error{}
	p := failing(t, fail)
	x, y := connected(t, p, p)
	mem := make([]byte, 8)
	seg := x.local(mem)
	d := y.expose(make([]byte, 8), provider.RightRead|provider.RightWrite).Descriptor
	y.receives(4, 8)
	for s, do := range map[Step]func() error{
		StepAllocate:   func() error { _, err := x.Allocate(8); return err },
		StepRegister:   func() error { _, err := x.Register(mem); return err },
		StepExpose:     func() error { _, err := x.Expose(mem, provider.RightRead); return err },
		StepDeregister: func() error { return x.Deregister(x.local(mem).Handle) },
		StepPostRecv:   func() error { return x.PostRecv(provider.Recv{Buffer: seg}) },
		StepPostSend:   func() error { return x.PostSend(inline("x")) },
		StepPostWrite:  func() error { return x.PostWrite(provider.RDMA{Local: seg, Remote: d}) },
		StepPostRead:   func() error { return x.reader().PostRead(provider.RDMA{Local: seg, Remote: d}) },
	} {
		fail[s] = provider.StatusNoMemory
		require.Equal(t, provider.StatusNoMemory, do(), s.String())
		require.Empty(t, x.all())
		require.Empty(t, y.all())
		delete(fail, s)
		require.NoError(t, do(), s.String())
		x.all()
		y.all()
	}
}

func TestFaultOfTransfer(t *testing.T) {
	mem := make([]byte, 8)
	for name, post := range map[string]func(x *end, d provider.Descriptor) error{
		"inline": func(x *end, d provider.Descriptor) error {
			return x.PostSend(provider.Send{Context: 1, Inline: [2][]byte{mem}})
		},
		"local": func(x *end, d provider.Descriptor) error {
			return x.PostSend(provider.Send{Context: 1, Local: x.local(mem)})
		},
		"write": func(x *end, d provider.Descriptor) error {
			return x.PostWrite(provider.RDMA{Context: 1, Local: x.local(mem), Remote: d})
		},
		"read": func(x *end, d provider.Descriptor) error {
			return x.reader().PostRead(provider.RDMA{Context: 1, Local: x.local(mem), Remote: d})
		},
	} {
		for _, latency := range []time.Duration{0, 1} {
			fail := map[Step]error{}
			p := open(t, Config{Faults: Faults{Hook: func(s Step) error { return fail[s] }}, Link: Link{Latency: latency}})
			x, y := connected(t, p, p)
			d := y.expose(make([]byte, 8), provider.RightRead|provider.RightWrite).Descriptor
			y.receives(1, 8)
			fail[StepTransfer] = provider.StatusTimeout
			require.NoError(t, post(x, d), name)
			c := x.next()
			require.EqualValues(t, 1, c.Context)
			require.Equal(t, provider.StatusTimeout, c.Status)
			require.Equal(t, provider.Completion{Op: provider.OpDisconnect, Status: provider.StatusTimeout}, x.next())
			require.Equal(t, provider.Completion{Op: provider.OpRecv, Status: provider.StatusAborted}, y.next())
			require.Equal(t, provider.Completion{Op: provider.OpDisconnect, Status: provider.StatusTimeout}, y.next())
			require.Empty(t, x.all())
		}
	}
}

func TestFaultErrors(t *testing.T) {
	odd := errors.New("odd")
	full := &provider.Error{Provider: "x", Op: "y", Status: provider.StatusRefused, Reason: []byte("z")}
	fail := map[Step]error{StepDial: odd}
	p := failing(t, fail)
	_, err := p.Dial(context.Background(), loopback, ap("127.0.0.1:1"))
	require.ErrorIs(t, err, odd)
	statusOf(t, provider.StatusLink, err)
	fail[StepDial] = full
	_, err = p.Dial(context.Background(), loopback, ap("127.0.0.1:1"))
	require.Same(t, full, err)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	for _, s := range Steps() {
		require.NotEmpty(t, s.String())
		require.NotEqual(t, "unknown step", s.String())
	}
	require.Equal(t, "unknown step", Step(0).String())
}

// outcomes allocates n times and says which failed.
func outcomes(t *testing.T, c Config, n int) []bool {
	x, _ := pair(t, c)
	out := make([]bool, n)
	for i := range out {
		r, err := x.Allocate(8)
		out[i] = err != nil
		if err == nil {
			x.Expose(r.Bytes, provider.RightRead) // other steps do not disturb
		}
	}
	return out
}

func TestFaultRules(t *testing.T) {
	require.Equal(t, []bool{false, false, true, false},
		outcomes(t, Config{Faults: Faults{Rules: []Fault{{Step: StepAllocate, Nth: 3}, {Step: StepExpose}}}}, 4))
	require.Equal(t, []bool{true, true}, outcomes(t, Config{Faults: Faults{Rules: []Fault{{Step: StepAllocate}}}}, 2))

	half := Config{Faults: Faults{
		Rules: []Fault{{Step: StepAllocate, Probability: 0.5, Status: provider.StatusNoMemory}}, Seed: 7,
	}}
	one := outcomes(t, half, 200)
	require.Contains(t, one, true)
	require.Contains(t, one, false)
	require.Equal(t, one, outcomes(t, half, 200), "the same seed, the same run")
	half.Faults.Rules = append(half.Faults.Rules, Fault{Step: StepExpose, Probability: 0.5})
	require.Equal(t, one, outcomes(t, half, 200), "whatever else goes wrong")
	half.Faults.Seed = 8
	require.NotEqual(t, one, outcomes(t, half, 200))

	p := open(t, Config{Faults: Faults{Rules: []Fault{{Step: StepDial}}}})
	_, err := p.Dial(context.Background(), loopback, ap("127.0.0.1:1"))
	statusOf(t, provider.StatusLink, err)
}

func TestLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fabric := NewFabric()
		p := open(t, Config{Fabric: fabric, Link: Link{Latency: 10 * time.Millisecond}})
		q := open(t, Config{Fabric: fabric, Link: Link{Latency: 2 * time.Millisecond}})
		start := time.Now()
		since := func() time.Duration {
			d := time.Since(start)
			start = time.Now()
			return d
		}
		x, y := connected(t, p, q)
		require.Equal(t, 12*time.Millisecond, since())
		x.receives(1, 8)
		y.receives(2, 8)
		d := y.expose([]byte("01234567"), provider.RightRead|provider.RightWrite).Descriptor
		mem := make([]byte, 8)

		x.say("x")
		require.Empty(t, y.all())
		require.Equal(t, 1, y.next().Len)
		require.Equal(t, 10*time.Millisecond, since())
		y.say("y")
		x.next()
		require.Equal(t, 2*time.Millisecond, since())

		require.NoError(t, x.reader().PostRead(provider.RDMA{Context: 1, Local: provider.Segment{Bytes: mem}, Remote: d}))
		require.Equal(t, provider.Completion{Context: 1, Op: provider.OpRead}, x.next())
		require.Equal(t, 12*time.Millisecond, since(), "a round trip")
		require.Equal(t, "01234567", string(mem))

		require.NoError(t, x.PostWrite(provider.RDMA{Context: 2, Local: provider.Segment{Bytes: []byte("ab")}, Remote: d}))
		x.say("written")
		require.Equal(t, 7, y.next().Len)
		require.Equal(t, 10*time.Millisecond, since())
		require.Equal(t, provider.Completion{Context: 2, Op: provider.OpWrite}, x.next())
	})
}

func TestBandwidth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := pair(t, Config{Link: Link{Latency: time.Millisecond, Bandwidth: 1000}})
		y.receives(8, 100)
		start := time.Now()
		msg := make([]byte, 100)
		for range 5 {
			require.NoError(t, x.PostSend(provider.Send{Inline: [2][]byte{msg}}))
		}
		for i := range 5 {
			y.next()
			require.Equal(t, time.Duration(i+1)*100*time.Millisecond+time.Millisecond, time.Since(start))
		}
		// The data of a read takes time on the way back, beside what the owner sends itself.
		x.receives(1, 100)
		d := y.expose(make([]byte, 500), provider.RightRead).Descriptor
		start = time.Now()
		require.NoError(t, x.reader().PostRead(provider.RDMA{Local: provider.Segment{Bytes: make([]byte, 500)}, Remote: d}))
		require.Equal(t, provider.OpRead, x.next().Op)
		require.Equal(t, 500*time.Millisecond+requestSize*time.Millisecond+2*time.Millisecond, time.Since(start))
	})
}

// TestShapedOrder mixes what is fast and slow to send: the order stays.
func TestShapedOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := pair(t, Config{Link: Link{Latency: time.Millisecond, Bandwidth: 1 << 20}})
		const n = 50
		r := y.receives(n, 8)
		mem := make([]byte, 4096)
		d := y.expose(mem, provider.RightWrite).Descriptor
		for i := range n {
			src := make([]byte, 4096)
			for j := range src {
				src[j] = byte(i)
			}
			require.NoError(t, x.PostWrite(provider.RDMA{Local: provider.Segment{Bytes: src}, Remote: d}))
			require.NoError(t, x.PostSend(provider.Send{Inline: [2][]byte{{byte(i)}}}))
		}
		for i := range n {
			c := y.next()
			require.EqualValues(t, i, r.Bytes[int(c.Context)*8])
			require.EqualValues(t, i, mem[0])
			require.EqualValues(t, i, mem[4095])
		}
		require.Len(t, x.all(), n)
	})
}

func TestShapedClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := pair(t, Config{Link: Link{Latency: time.Hour}})
		x.receives(1, 8)
		y.receives(3, 8)
		d := y.expose(make([]byte, 8), provider.RightRead|provider.RightWrite)
		dx := x.expose(make([]byte, 8), provider.RightRead)
		mem := make([]byte, 8)
		// What has been sent when Close is called arrives, and so does the write before it; a read
		// has no answer.
		x.say("one")
		require.NoError(t, x.reader().PostRead(provider.RDMA{Context: 6, Local: provider.Segment{Bytes: mem}, Remote: d.Descriptor}))
		require.NoError(t, x.PostWrite(provider.RDMA{Context: 7, Local: provider.Segment{Bytes: []byte("w")}, Remote: d.Descriptor}))
		x.say("two")
		y.say("lost")
		require.NoError(t, y.PostSend(provider.Send{Context: 8, Local: y.local([]byte("lost"))}))
		require.NoError(t, y.reader().PostRead(provider.RDMA{Context: 9, Local: provider.Segment{Bytes: mem}, Remote: dx.Descriptor}))
		seg := x.local(mem)
		require.NoError(t, x.PostSend(provider.Send{Context: 10, Local: seg}))
		require.Equal(t, provider.StatusBusy, x.Deregister(seg.Handle))
		require.NoError(t, x.Close())
		require.ElementsMatch(t, []provider.Completion{
			{Context: 7, Op: provider.OpWrite},
			{Context: 10, Op: provider.OpSend},
			{Context: 6, Op: provider.OpRead, Status: provider.StatusAborted},
			{Context: 0, Op: provider.OpRecv, Status: provider.StatusAborted},
		}, x.all())
		require.EqualValues(t, 'w', d.Bytes[0])
		require.ElementsMatch(t, []provider.Completion{
			{Context: 0, Op: provider.OpRecv, Len: 3},
			{Context: 1, Op: provider.OpRecv, Len: 3},
			{Context: 2, Op: provider.OpRecv, Len: 8},
			{Context: 8, Op: provider.OpSend, Status: provider.StatusAborted},
			{Context: 9, Op: provider.OpRead, Status: provider.StatusAborted},
			{Op: provider.OpDisconnect, Status: provider.StatusDisconnected},
		}, y.all())
		y.Close()
		synctest.Wait() // and no timer keeps the bubble
	})
}

func TestShapedInlineIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := pair(t, Config{MaxRecvs: 4, Link: Link{Latency: time.Second}})
		y.receives(4, 8)
		for range 5 { // the peer can never have receives for more
			x.say("x")
		}
		require.Equal(t, provider.StatusQueueFull, x.PostSend(inline("x")))
	})
}

func TestCutLink(t *testing.T) {
	for _, latency := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			p := open(t, Config{Link: Link{Latency: latency}})
			if latency != 0 { // Dial takes it, too
				p.link.Latency = 1
			}
			x, y := connected(t, p, p)
			if latency != 0 {
				for _, l := range x.Endpoint.(knobbed).conn.links {
					l.Latency = latency
				}
			}
			y.receives(2, 8)
			x.say("x")
			require.NoError(t, x.PostSend(provider.Send{Context: 3, Local: x.local([]byte("y"))}))
			p.CutLinks()
			cx, cy := x.all(), y.all()
			down := provider.Completion{Op: provider.OpDisconnect, Status: provider.StatusLink}
			if latency == 0 {
				require.Equal(t, []provider.Completion{{Context: 3, Op: provider.OpSend}, down}, cx)
				require.Equal(t, []provider.Completion{{Op: provider.OpRecv, Len: 1}, {Context: 1, Op: provider.OpRecv, Len: 1}, down}, cy)
			} else {
				require.Equal(t, []provider.Completion{{Context: 3, Op: provider.OpSend, Status: provider.StatusAborted}, down}, cx)
				require.Equal(t, []provider.Completion{{Op: provider.OpRecv, Status: provider.StatusAborted},
					{Context: 1, Op: provider.OpRecv, Status: provider.StatusAborted}, down}, cy)
			}
			require.ErrorIs(t, cx[1].Status, syscall.ENETDOWN)
			require.Equal(t, provider.StatusDisconnected, x.PostSend(inline("x")))
		})
	}
}

func TestDropLink(t *testing.T) {
	for _, link := range []Link{{}, {Latency: time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			p := open(t, Config{Link: link, MaxSends: 2})
			x, y := connected(t, p, p)
			y.receives(2, 8)
			mem := []byte("untouched")
			d := y.expose(mem, provider.RightWrite).Descriptor
			p.DropLinks()

			// Nobody hears anything: sends vanish, what has a completion waits for it.
			for range 10 {
				x.say("x")
			}
			seg := x.local([]byte("y"))
			require.NoError(t, x.PostSend(provider.Send{Context: 1, Local: seg}))
			require.NoError(t, x.PostSend(provider.Send{Context: 2, Local: seg}))
			require.Equal(t, provider.StatusQueueFull, x.PostSend(provider.Send{Local: seg}))
			require.NoError(t, x.PostWrite(provider.RDMA{Context: 3, Local: seg, Remote: d}))
			time.Sleep(time.Hour)
			require.Empty(t, x.all())
			require.Empty(t, y.all())
			require.Equal(t, "untouched", string(mem))
			require.Equal(t, provider.StatusBusy, x.Deregister(seg.Handle))

			// Not even the other's Close.
			require.NoError(t, x.Close())
			require.ElementsMatch(t, []provider.Completion{
				{Context: 1, Op: provider.OpSend, Status: provider.StatusAborted},
				{Context: 2, Op: provider.OpSend, Status: provider.StatusAborted},
				{Context: 3, Op: provider.OpWrite, Status: provider.StatusAborted},
			}, x.all())
			require.Equal(t, provider.StatusClosed, x.PostSend(inline("x")))
			require.NoError(t, y.PostSend(inline("x")))
			time.Sleep(time.Hour)
			require.Empty(t, y.all())
			require.NoError(t, y.Close())
			require.Len(t, y.all(), 2)
			require.Equal(t, Stats{}, p.Stats())
		})
	}
	x, _ := pair(t, Config{})
	require.False(t, DropLink(x), "a wrapped endpoint is not one of ours")
	require.False(t, CutLink(nil))
}

func TestCompletions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := both(t, Config{}, Config{Completions: Completions{Delay: time.Second, Batch: 3}})
		y.receives(8, 8)
		start := time.Now()
		x.say("a")
		x.say("b")
		require.Empty(t, y.all())
		require.False(t, y.Arm(provider.WakeAny))
		x.say("c")
		<-y.wake
		require.Zero(t, time.Since(start))
		require.Len(t, y.all(), 3)
		require.NoError(t, x.PostSend(provider.Send{Inline: [2][]byte{[]byte("d")}}))
		require.False(t, y.Arm(provider.WakeSolicited))
		x.say("e")
		<-y.wake // for the second of them
		require.Equal(t, time.Second, time.Since(start))
		require.Len(t, y.all(), 2)
		require.Zero(t, y.Endpoint.(*endpoint).cq.urgent)
		x.say("again")
		require.Equal(t, 5, y.next().Len)
		require.Equal(t, 2*time.Second, time.Since(start))

		// The end shows what is held back, in order.
		x.say("f")
		require.False(t, y.Arm(provider.WakeAny))
		x.Close()
		<-y.wake
		c := y.all()
		require.Equal(t, 1, c[0].Len)
		require.Equal(t, provider.OpDisconnect, c[len(c)-1].Op)
		require.Len(t, c, 3)
	})
}

func TestCompletionsAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := pair(t, Config{Completions: Completions{Batch: 2}})
		y.receives(8, 8)
		x.say("a")
		y.OnWake(func() { assert.Fail(t, "after Close") })
		y.Arm(provider.WakeAny)
		y.Close()
		time.Sleep(time.Second)
		require.Len(t, y.all(), 8)
	})
}

func TestDialWithLatencyCanBeCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t, Config{Link: Link{Latency: time.Minute}})
		l, err := p.Listen(loopback, 1)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			e, err := accept(l)
			if assert.NoError(t, err) {
				assert.Equal(t, provider.OpDisconnect, newEnd(t, e).next().Op)
				e.Close()
			}
		})
		_, err = p.Dial(ctx, netip.AddrPort{}, l.Addr())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		wg.Wait()
		require.Equal(t, Stats{Listeners: 1}, p.Stats())
	})
}
