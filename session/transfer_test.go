package session

import (
	"bytes"
	"fmt"
	"runtime"
	"syscall"
	"testing"

	pool "github.com/libp2p/go-buffer-pool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/provider"
	"sansock/session/regcache"
)

// transferKinds are the modelAttrs that differ in how large writes cross.
var transferKinds = []int{0, 1, 2, 3}

func forTransfers(t *testing.T, f func(t *testing.T, d *duo)) {
	for _, kind := range transferKinds {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			d := newDuo(t, modelAttrs(kind), modelAttrs(kind))
			f(t, d)
			d.finish()
		})
	}
}

// offer has end i offer p.
func (d *duo) offer(i int, p []byte) (first int) {
	d.t.Helper()
	first, begun := d.c[i].offer(p)
	require.True(d.t, begun)
	d.settle()
	return first
}

// drain reads n bytes with Reads of at most size.
func (d *duo) drain(i, n, size int) (got []byte) {
	d.t.Helper()
	p := make([]byte, size)
	for range 100000 {
		if len(got) >= n {
			return got
		}
		m, err := d.c[i].read(p)
		require.NoError(d.t, err)
		if m == 0 {
			m = d.pull(i, p)
		}
		got = append(got, p[:m]...)
		d.settle()
	}
	d.t.Fatalf("%d bytes of %d arrive", len(got), n)
	return nil
}

func TestOfferIntoAWaitingRead(t *testing.T) {
	forTransfers(t, func(t *testing.T, d *duo) {
		const n = 200_000
		want := streamBytes(0, 0, n)
		first := d.offer(0, want)
		got := d.drain(1, n, n)
		assert.True(t, bytes.Equal(want, got))
		require.True(t, d.c[0].outboundOver())
		direct := d.c[0].out.direct
		assert.Equal(t, n-first, d.c[0].takeOutbound())
		s, r := d.c[0].statistics(), d.c[1].statistics()
		assert.EqualValues(t, n-first, s.BytesRDMAOut)
		assert.EqualValues(t, n-first, r.BytesRDMAIn)
		assert.EqualValues(t, first, s.BytesCopiedOut)
		assert.EqualValues(t, first, r.BytesCopiedIn)
		if a := d.c[0].attr; a.RDMARead {
			assert.True(t, direct)
			assert.EqualValues(t, (n-first+a.MaxRDMA-1)/a.MaxRDMA, r.ReadTransfers)
			assert.Zero(t, s.WriteTransfers)
		} else {
			assert.Zero(t, r.ReadTransfers)
			assert.NotZero(t, s.WriteTransfers)
			assert.Equal(t, s.WriteTransfers, r.WriteTransfers)
		}
	})
}

// Reads of any size take an offer in pieces, and messages go on in the other direction meanwhile.
func TestOfferInPieces(t *testing.T) {
	for _, size := range []int{1, 7, 1000, directRead - 1, directRead, 50_000, ownPiece, 150_000} {
		forTransfers(t, func(t *testing.T, d *duo) {
			n := 130_000
			if size < 100 {
				n = 20_000
			}
			want := streamBytes(0, 0, n)
			first := d.offer(0, want)
			d.write(1, []byte("there"))
			got := d.drain(1, n, size)
			assert.True(t, bytes.Equal(want, got), "size %d", size)
			assert.Equal(t, []byte("there"), d.read(0, 10))
			require.True(t, d.c[0].outboundOver())
			assert.Equal(t, n-first, d.c[0].takeOutbound())
			assert.LessOrEqual(t, memory(d.c[1]), ownPiece+16*itemSize)
		})
	}
}

// While nobody reads, an offer is fetched as far as the receive buffer goes.
func TestOfferIntoTheReceiveBuffer(t *testing.T) {
	for _, kind := range transferKinds {
		for _, limit := range []int{4 << 10, 100_000, 200_000, 1 << 20} {
			d := newDuo(t, modelAttrs(kind), modelAttrs(kind), Config{ReadBuffer: limit})
			const n = 200_000
			want := streamBytes(0, 0, n)
			first := d.offer(0, want)
			for d.c[1].behind() {
				op, begun := d.c[1].pullOwn()
				require.True(t, begun)
				if op.Local.Bytes != nil {
					d.c[1].pullPosted(d.c[1].reader.PostRead(op))
				}
				d.settlePushing()
				require.NoError(t, sane(d.c[1]))
			}
			_, begun := d.c[1].pullOwn()
			assert.False(t, begun)
			assert.LessOrEqual(t, d.c[1].spilled, limit)
			assert.GreaterOrEqual(t, d.c[1].spilled, min(limit/2, n-first), "no room is left unused")
			assert.Equal(t, n-first <= limit, d.c[0].outboundOver(), "limit %d", limit)
			assert.True(t, bytes.Equal(want, d.drain(1, n, 10_000)))
			require.True(t, d.c[0].outboundOver())
			assert.Equal(t, n-first, d.c[0].takeOutbound())
			d.finish()
		}
	}
}

func TestRevokeBeforeAnybodyPulls(t *testing.T) {
	forTransfers(t, func(t *testing.T, d *duo) {
		want := streamBytes(0, 0, 100_000)
		first := d.offer(0, want)
		d.c[0].revokeOutbound()
		d.c[0].revokeOutbound() // again changes nothing
		d.settle()
		require.True(t, d.c[0].outboundOver())
		assert.Zero(t, d.c[0].takeOutbound())
		assert.False(t, d.c[1].in.active)
		_, begun := d.c[1].pull(make([]byte, 100))
		assert.False(t, begun)

		// The stream goes on behind what was delivered.
		d.write(0, want[first:first+100])
		d.settle()
		assert.Equal(t, want[:first+100], d.drain(1, first+100, 1000))
		d.settle()
		d.offer(0, want[:20_000])
		assert.True(t, bytes.Equal(want[:20_000], d.drain(1, 20_000, 20_000)))
		d.c[0].takeOutbound()
	})
}

// The count of a revoked write is what the peer has: no piece is lost, none is sent twice.
func TestRevokeAfterAPiece(t *testing.T) {
	forTransfers(t, func(t *testing.T, d *duo) {
		want := streamBytes(0, 0, 100_000)
		first := d.offer(0, want)
		got := d.drain(1, first, max(first, 1))
		p := make([]byte, 20_000)
		got = append(got, p[:d.pull(1, p)]...)
		assert.Len(t, got, first+20_000)
		d.c[0].revokeOutbound()
		d.settle()
		require.True(t, d.c[0].outboundOver())
		assert.Equal(t, 20_000, d.c[0].takeOutbound())
		assert.True(t, bytes.Equal(want[:len(got)], got))
	})
}

// A revocation that arrives while a piece is under way waits for its end.
func TestRevokeDuringAPiece(t *testing.T) {
	forTransfers(t, func(t *testing.T, d *duo) {
		want := streamBytes(0, 0, 100_000)
		first := d.offer(0, want)
		got := d.drain(1, first, max(first, 1))
		p := make([]byte, 20_000)
		op, begun := d.c[1].pull(p)
		require.True(t, begun)
		d.c[0].revokeOutbound()
		if op.Local.Bytes != nil {
			// Read mode: the revocation is there first, the read takes its time.
			d.deliver(0)
			assert.True(t, d.c[1].in.revoked)
			assert.False(t, d.c[0].outboundOver(), "the memory may still be read")
			d.c[1].pullPosted(d.c[1].reader.PostRead(op))
		}
		// Write mode: the target crosses the revocation, and comes back unused.
		d.settlePushing()
		require.True(t, d.c[0].outboundOver())
		n := d.c[1].takePiece()
		assert.True(t, bytes.Equal(want[first:first+n], p[:n]))
		assert.Equal(t, n, d.c[0].takeOutbound())
		if op.Local.Bytes == nil {
			assert.Zero(t, n)
		} else {
			assert.Equal(t, 20_000, n)
		}
		assert.False(t, d.c[1].in.active)
		assert.Len(t, got, first)
	})
}

// A revocation crosses the message that says that everything was taken.
func TestRevokeCrossesTheEnd(t *testing.T) {
	forTransfers(t, func(t *testing.T, d *duo) {
		want := streamBytes(0, 0, 20_000)
		first := d.offer(0, want)
		d.drain(1, first, max(first, 1))
		c := d.c[1]
		op, begun := c.pull(make([]byte, len(want)))
		require.True(t, begun)
		if op.Local.Bytes == nil {
			d.deliver(1)
			w, ok := d.c[0].push()
			require.True(t, ok)
			d.c[0].pushPosted(d.w.ends[0].PostWrite(w))
			d.c[0].revokeOutbound() // the write is posted: it ends before the revocation takes effect
		} else {
			c.pullPosted(c.reader.PostRead(op))
			d.w.ends[1].deliver()
			c.poll() // sends done
			d.c[0].revokeOutbound()
		}
		d.settle()
		assert.Equal(t, len(want)-first, c.takePiece())
		require.True(t, d.c[0].outboundOver())
		assert.Equal(t, len(want)-first, d.c[0].takeOutbound())
		assert.NoError(t, d.c[0].err)
		assert.NoError(t, d.c[1].err)

		// The next offer is not taken for the revoked one.
		want = streamBytes(0, 20_000, 30_000)
		d.offer(0, want)
		assert.True(t, bytes.Equal(want, d.drain(1, len(want), len(want))))
		d.c[0].takeOutbound()
	})
}

// writeModeDuo is one where the peer cannot be read, and every RDMA write takes several posts.
func writeModeDuo(t *testing.T) *duo {
	a := modelAttrs(1)
	a.MaxRDMA = 10_000
	return newDuo(t, a, modelAttrs(1))
}

// post makes one RDMA write of end 0, and has it arrive.
func (d *duo) push() {
	d.t.Helper()
	op, ok := d.c[0].push()
	require.True(d.t, ok)
	d.c[0].pushPosted(d.w.ends[0].PostWrite(op))
	d.w.ends[0].deliver()
	d.c[0].poll()
}

// The receiver takes its target back at any point: its Read returns what has been written until then.
func TestUntarget(t *testing.T) {
	for pushes := range 5 {
		d := writeModeDuo(t)
		want := streamBytes(0, 0, 80_000)
		d.offer(0, want)
		p := make([]byte, 40_000)
		_, begun := d.c[1].pull(p)
		require.True(t, begun)
		d.deliver(1)
		for range pushes {
			d.push()
		}
		d.c[1].stopPiece()
		d.c[1].stopPiece()
		d.settle() // after the fourth push it crosses wrote
		require.True(t, d.c[1].in.over)
		n := d.c[1].takePiece()
		assert.Equal(t, pushes*10_000, n)
		assert.True(t, bytes.Equal(want[:n], p[:n]))
		assert.True(t, d.c[1].in.active)
		assert.Equal(t, 1, d.w.ends[1].leaks(), "only the receive region is registered")

		assert.True(t, bytes.Equal(want[n:], d.drain(1, len(want)-n, 30_000)), "the offer goes on")
		require.True(t, d.c[0].outboundOver())
		assert.Equal(t, len(want), d.c[0].takeOutbound())
		d.finish()
	}
}

// A target that the peer has not heard of, for want of credits, is taken back without asking it.
func TestUntargetUnsent(t *testing.T) {
	d := writeModeDuo(t)
	want := streamBytes(0, 0, 80_000)
	d.offer(0, want)
	c := d.c[1]
	credits := c.win.credits
	c.win.credits = 1
	p := make([]byte, 40_000)
	_, begun := c.pull(p)
	require.True(t, begun)
	require.True(t, c.wanted(letterTarget))
	c.stopPiece()
	assert.True(t, c.in.over && !c.in.busy)
	assert.Zero(t, c.takePiece())
	c.win.credits = credits
	c.pump()
	d.settle()
	assert.True(t, bytes.Equal(want, d.drain(1, len(want), 30_000)))
	require.True(t, d.c[0].outboundOver())
	d.c[0].takeOutbound()
	d.finish()
}

// The writer revokes in the middle of a target.
func TestRevokeDuringATarget(t *testing.T) {
	for pushes := range 4 {
		d := writeModeDuo(t)
		want := streamBytes(0, 0, 80_000)
		d.offer(0, want)
		p := make([]byte, 40_000)
		_, begun := d.c[1].pull(p)
		require.True(t, begun)
		d.deliver(1)
		for range pushes {
			d.push()
		}
		// One more is under way.
		op, ok := d.c[0].push()
		require.True(t, ok)
		d.c[0].pushPosted(d.w.ends[0].PostWrite(op))
		d.c[0].revokeOutbound()
		_, ok = d.c[0].push()
		assert.False(t, ok)
		d.settle()
		require.True(t, d.c[0].outboundOver())
		n := d.c[1].takePiece()
		assert.Equal(t, (pushes+1)*10_000, n)
		assert.True(t, bytes.Equal(want[:n], p[:n]))
		assert.Equal(t, n, d.c[0].takeOutbound())
		assert.False(t, d.c[1].in.active)
		d.finish()
	}
}

// Without memory for the device at either side a large write goes in messages, and is counted.
func TestOfferFallsBack(t *testing.T) {
	for _, kind := range transferKinds {
		for _, step := range []string{"expose", "register"} {
			for _, after := range []int{1, 2, 3} {
				d := newDuo(t, modelAttrs(kind), modelAttrs(kind))
				n := 0
				d.w.faults = func(at string) provider.Status {
					if at == step {
						if n++; n >= after {
							return provider.StatusLimit
						}
					}
					return provider.StatusOK
				}
				want := streamBytes(0, 0, 150_000)
				sent := 0
				if first, begun := d.c[0].offer(want); begun {
					d.settle()
					p := make([]byte, 20_000)
					var got []byte
					for range 100 {
						m, err := d.c[1].read(p)
						require.NoError(t, err)
						if m == 0 {
							m = d.pull(1, p)
						}
						got = append(got, p[:m]...)
						if d.settle(); d.c[0].outboundOver() {
							break
						}
					}
					require.True(t, d.c[0].outboundOver())
					sent = first + d.c[0].takeOutbound()
					got = append(got, d.read(1, 1<<20)...)
					assert.True(t, bytes.Equal(want[:sent], got))
				}
				f := [2]Fallbacks{d.c[0].stats.Fallbacks, d.c[1].stats.Fallbacks}
				assert.Zero(t, f[0].ReceiveRegistration+f[1].SendRegistration)
				if sent == len(want) {
					assert.Zero(t, f[0].SendRegistration+f[1].ReceiveRegistration)
				} else {
					assert.EqualValues(t, 1, f[0].SendRegistration+f[1].ReceiveRegistration, "kind %d %s %d", kind, step, after)
				}
				for sent < len(want) {
					m := d.write(0, want[sent:])
					d.settle()
					require.True(t, bytes.Equal(want[sent:sent+m], d.read(1, 1<<20)))
					sent += m
					d.settle()
				}
				assert.NoError(t, d.c[0].err)
				assert.NoError(t, d.c[1].err)
				d.w.faults = nil
				d.finish()
			}
		}
	}
}

// A limit on registrations is kept by giving up those that are kept for later, before a transfer is given up.
func TestExposeRelieves(t *testing.T) {
	a := modelAttrs(2)
	for _, want := range []provider.Rights{provider.RightRead, provider.RightWrite} {
		d := newDuo(t, a, a)
		c, ep := d.c[0], d.w.ends[0]
		c.cache = regcache.Limits{Entries: 4, Bytes: 1 << 20}
		idle := make([]byte, 30_000)
		h, err := c.registerLocal(idle)
		require.NoError(t, err)
		c.regs.Put(h)
		limit := len(ep.regs)
		d.w.faults = func(step string) provider.Status {
			if step == "expose" && len(ep.regs) >= limit {
				return provider.StatusLimit
			}
			return provider.StatusOK
		}
		r, err := c.expose(make([]byte, 30_000), want)
		require.NoError(t, err)
		_, err = c.expose(make([]byte, 30_000), want)
		assert.Equal(t, provider.StatusLimit, err, "nothing left to give up")
		c.conceal(r.Handle)
		runtime.KeepAlive(idle)
		d.w.faults = nil
		d.finish()
	}
}

// Memory that the provider does not take back would stay in the peer's reach: the connection is given up.
func TestDeregisterFails(t *testing.T) {
	for _, kind := range transferKinds {
		d := newDuo(t, modelAttrs(kind), modelAttrs(kind))
		first := d.offer(0, make([]byte, 25_000))
		d.drain(1, first, max(1, first))
		d.w.faults = func(step string) provider.Status {
			if step == "deregister" {
				return provider.StatusBusy
			}
			return provider.StatusOK
		}
		d.pull(1, make([]byte, 25_000))
		c := d.c[1] // who exposed memory
		if c.attr.RDMARead {
			c = d.c[0]
		}
		assert.True(t, c.finished() && c.line.state == lineEnded, "the endpoint is closed at once")
		assert.True(t, isBroken(c))
		assert.Equal(t, provider.StatusBusy, c.err)
		d.w.faults = nil
		for i, c := range d.c {
			d.w.ends[i].Close()
			c.lineClosed()
			c.finish()
		}
		requireRules(t, d.w)
	}
}

// The endpoint is closed between the moment an RDMA operation is prepared and the one it is posted.
func TestClosedBeforePosting(t *testing.T) {
	for _, kind := range transferKinds {
		d := newDuo(t, modelAttrs(kind), modelAttrs(kind))
		first := d.offer(0, make([]byte, 100_000))
		d.drain(1, first, max(1, first))
		op, begun := d.c[1].pull(make([]byte, 100_000))
		require.True(t, begun)
		closeEnd := func(i int) {
			d.w.ends[i].Close()
			d.c[i].lineClosed()
		}
		if op.Local.Bytes != nil {
			closeEnd(1)
			d.c[1].pullPosted(d.c[1].reader.PostRead(op))
			assert.Zero(t, d.c[1].takePiece())
			assert.False(t, d.c[1].in.busy)
		} else {
			d.deliver(1)
			op, begun := d.c[0].push()
			require.True(t, begun)
			closeEnd(0)
			d.c[0].pushPosted(d.w.ends[0].PostWrite(op))
			assert.True(t, d.c[0].outboundOver(), "the Write returns")
			assert.Zero(t, d.c[0].takeOutbound())
		}
		d.finish()
	}
}

// A peer that says it is done while our RDMA writes are under way does not get the memory back to the caller before these
// have ended.
func TestDoneBeforeTheWriteHasEnded(t *testing.T) {
	p := newPuppet(t, modelAttrs(3), puppetHello(), Config{})
	r, err := p.ep.Expose(make([]byte, 5000), provider.RightWrite)
	require.NoError(t, err)
	before := p.w.ends[0].leaks()
	first, begun := p.c.offer(make([]byte, 50_000))
	require.True(t, begun)
	p.say(header{kind: kindTarget, arg: 1}, target{length: 5000, desc: r.Descriptor}.bytes())
	op, begun := p.c.push()
	require.True(t, begun)
	p.c.pushPosted(p.w.ends[0].PostWrite(op))
	require.True(t, p.raw(encode(header{kind: kindDone, arg: 1}, count(uint64(50_000-first)))))
	p.c.poll()
	assert.True(t, p.c.out.over)
	assert.False(t, p.c.outboundOver())
	assert.Equal(t, before+1, p.w.ends[0].leaks(), "the memory is still registered")
	p.listen()
	p.c.poll()
	assert.True(t, p.c.outboundOver())
	assert.Equal(t, before, p.w.ends[0].leaks())
	assert.Equal(t, 50_000-first, p.c.takeOutbound())
	p.finish()
}

// RDMA that fails in the middle breaks both ends, with the cause at the one that saw it.
func TestRDMAFails(t *testing.T) {
	for _, kind := range transferKinds {
		for _, step := range []string{"post-rdma", "rdma"} {
			d := newDuo(t, modelAttrs(kind), modelAttrs(kind))
			first := d.offer(0, make([]byte, 100_000))
			d.drain(1, first, max(1, first))
			d.w.faults = nth(step, 1, provider.StatusTooLong)
			op, begun := d.c[1].pull(make([]byte, 100_000))
			require.True(t, begun)
			if op.Local.Bytes != nil {
				d.c[1].pullPosted(d.c[1].reader.PostRead(op))
			}
			d.settlePushing()
			for i, c := range d.c { // as Conn does
				if isDone(c) {
					d.w.ends[i].Close()
					c.poll()
				}
			}
			d.settle()
			saw, other := d.c[1], d.c[0]
			if op.Local.Bytes == nil {
				saw, other = other, saw
			}
			assert.Equal(t, provider.StatusTooLong, saw.err)
			assert.Equal(t, syscall.ECONNRESET, other.err)
			assert.True(t, isDone(saw) && isDone(other))
			d.finish()
		}
	}
}

// Offers are told apart by a number that may wrap.
func TestOfferNumbersWrap(t *testing.T) {
	forTransfers(t, func(t *testing.T, d *duo) {
		d.c[0].out.id = 1<<64 - 3
		var ids []uint64
		pos := 0
		for i := range 6 {
			want := streamBytes(0, pos, 20_000)
			first := d.offer(0, want)
			ids = append(ids, d.c[0].out.id)
			if i%2 == 0 { // an unfinished one in between
				d.c[0].revokeOutbound()
				d.settle()
				require.True(t, d.c[0].outboundOver())
				assert.Zero(t, d.c[0].takeOutbound())
				assert.True(t, bytes.Equal(want[:first], d.drain(1, first, 10_000)))
				pos += first
				continue
			}
			assert.True(t, bytes.Equal(want, d.drain(1, len(want), 9_000)))
			assert.Equal(t, len(want)-first, d.c[0].takeOutbound())
			pos += len(want)
		}
		assert.Equal(t, []uint64{1<<64 - 2, 1<<64 - 1, 0, 1, 2, 3}, ids)
	})
}

// complete answers the RDMA operation that the core under test has posted, without moving a byte.
func (p *puppet) complete() provider.RDMA {
	p.t.Helper()
	e := p.w.ends[0]
	for i, m := range e.out {
		if m.op == provider.OpRead || m.op == provider.OpWrite {
			e.out = append(e.out[:i:i], e.out[i+1:]...)
			e.complete(provider.Completion{Context: m.ctx, Op: m.op}, true)
			if h := m.rdma.Local.Handle; h != 0 {
				e.inUse[h]--
			}
			p.c.poll()
			return m.rdma
		}
	}
	p.t.Fatal("no RDMA operation is posted")
	return provider.RDMA{}
}

// An offer of more than 4 GiB is fetched with offsets that do not wrap.
func TestOfferBeyond4GiBReceived(t *testing.T) {
	const total = 5<<30 + 12345
	buf := make([]byte, maxPiece+1) // is not touched in read mode
	p := newPuppet(t, fakeAttr(), puppetHello(), Config{})
	p.say(header{kind: kindOffer, arg: 7}, offer{total: total, read: true}.bytes())
	var got uint64
	for p.c.in.active {
		op, begun := p.c.pull(buf)
		require.True(t, begun)
		require.Equal(t, got, op.Offset)
		require.EqualValues(t, min(maxPiece, total-got), len(op.Local.Bytes))
		p.c.pullPosted(p.c.reader.PostRead(op))
		p.complete()
		got += uint64(p.c.takePiece())
	}
	assert.Equal(t, uint64(total), got)
	hs, payloads := p.heard()
	require.Len(t, hs, 1)
	assert.Equal(t, header{kind: kindDone, flags: flagDirect, credits: 3, length: 8, arg: 7}, hs[0])
	assert.Equal(t, count(total), payloads[0])
	assert.EqualValues(t, uint64(total), p.c.stats.BytesRDMAIn)
	p.finish()
}

func TestOfferBeyond4GiBReceivedByTargets(t *testing.T) {
	const total = 5<<30 + 12345
	buf := make([]byte, 1<<20)
	p := newPuppet(t, modelAttrs(1), puppetHello(), Config{})
	p.say(header{kind: kindOffer, arg: 7}, offer{total: total}.bytes())
	p.c.in.taken = 4<<30 - 5000 // as if so much had been written
	for p.c.in.active {
		_, begun := p.c.pull(buf)
		require.True(t, begun)
		hs, payloads := p.heard()
		require.Len(t, hs, 1)
		tg, err := parseTarget(payloads[0])
		require.NoError(t, err)
		require.EqualValues(t, min(uint64(len(buf)), total-p.c.in.taken), tg.length)
		p.say(header{kind: kindWrote, arg: 7, credits: 1}, count(tg.length))
		require.EqualValues(t, tg.length, p.c.takePiece())
	}
	assert.Equal(t, uint64(total), p.c.in.taken)
	assert.NoError(t, p.c.err)
	p.finish()
}

// What a peer claims to have written, and has not, must not bring to light what other connections left in the pool.
func TestNoStaleMemoryInATarget(t *testing.T) {
	secret := bytes.Repeat([]byte("secret"), 20_000)
	p := newPuppet(t, modelAttrs(1), puppetHello(), Config{})
	p.say(header{kind: kindOffer, arg: 1}, offer{total: 1 << 20}.bytes())
	for range 100 {
		pool.Put(append(pool.Get(ownPiece)[:0], secret[:ownPiece]...))
	}
	_, begun := p.c.pullOwn()
	require.True(t, begun)
	p.c.pump()
	p.say(header{kind: kindWrote, arg: 1}, count(ownPiece))
	buf := make([]byte, ownPiece)
	m, err := p.c.read(buf)
	require.NoError(t, err)
	require.Equal(t, ownPiece, m)
	assert.False(t, bytes.Contains(buf, []byte("secret")))
	p.finish()
}

// Many tiny pieces of the stream do not take much more memory than their bytes.
func TestSmallPiecesShareMemory(t *testing.T) {
	a := fakeAttr()
	p := newPuppet(t, a, puppetHello(), Config{ReadBuffer: 64 << 10})
	limit := 3*p.c.readBuffer + 4*spillChunk
	id := uint64(0)
	tiny := func(n uint64) {
		id++
		p.say(header{kind: kindOffer, arg: id, credits: 1}, offer{total: n, read: true}.bytes())
		if op, begun := p.c.pullOwn(); begun {
			p.c.pullPosted(p.c.reader.PostRead(op))
			p.complete()
		} else {
			p.say(header{kind: kindRevoke, arg: id, credits: 1})
		}
	}
	for i := range 5000 {
		tiny(1)
		p.say(header{kind: kindData, flags: flagBlocked, credits: 1}, []byte{1})
		p.c.spill()
		if i%3 == 0 {
			tiny(spillChunk / 2)
		}
		p.listen()
		require.NoError(t, sane(p.c))
		require.LessOrEqual(t, memory(p.c), limit, "%d bytes kept", p.c.spilled)
		if len(p.w.ends[0].recvs) < 4 {
			break // all memory is in use
		}
	}
	assert.Greater(t, p.c.spilled, p.c.readBuffer/2)
	p.finish()
}

func TestSpillKeepsTheOrderAndTheLimit(t *testing.T) {
	d := newDuo(t, fakeAttr(), fakeAttr(), Config{ReadBuffer: 20_000})
	c := d.c[1]
	want := streamBytes(0, 0, 400_000)
	sent, r := 0, fakeRand(1)
	for i := 0; sent < 200_000 && i < 10_000; i++ {
		m := d.write(0, want[sent:min(len(want), sent+1+r.IntN(3000))])
		sent += m
		d.c[0].block()
		d.settle()
		c.spill()
		c.pump()
		d.settle()
		require.NoError(t, sane(c))
		require.LessOrEqual(t, c.spilled, 20_000)
		if m == 0 {
			require.Greater(t, c.spilled, 20_000-busyBuffer, "there is no room for one more message")
			n := r.IntN(15_000) + 1
			pos := sent - c.queued
			require.True(t, bytes.HasPrefix(want[pos:], d.read(1, n)))
		}
	}
	for c.queued > 0 {
		pos := sent - c.queued
		require.True(t, bytes.HasPrefix(want[pos:], d.read(1, 1000)))
		d.settle()
	}
	d.finish()
}
