package session

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// urgent sends p from end i and returns what the other end takes.
func (d *duo) urgent(i int, p []byte) Urgent {
	d.t.Helper()
	require.True(d.t, d.c[i].canUrgent(len(p)))
	d.c[i].sendUrgent(p)
	d.settle()
	m, ok, err := d.c[1-i].takeUrgent()
	require.NoError(d.t, err)
	require.True(d.t, ok)
	d.settle()
	return m
}

// A direction in which nobody reads takes no more data, and any number of urgent messages.
func TestUrgentPassesStalledData(t *testing.T) {
	for kinds := range modelKinds * modelKinds {
		a, b := kinds/modelKinds, kinds%modelKinds
		t.Run(fmt.Sprintf("%d-%d", a, b), func(t *testing.T) {
			d := newDuo(t, modelAttrs(a), modelAttrs(b), Config{ReadBuffer: DefaultReadBuffer, Threshold: -1})
			written := 0
			p := streamBytes(0, 0, 1<<20)
			for range 10000 {
				n := d.write(0, p[:min(len(p), 5000)])
				written += n
				if p = p[n:]; n == 0 {
					break
				}
				d.settle()
			}
			require.False(t, d.c[0].canData(), "data is stalled")
			for i := range 200 {
				m := d.urgent(0, streamBytes(1, i, 1+i%maxUrgent))
				require.Equal(t, Urgent{streamBytes(1, i, 1+i%maxUrgent), int64(written)}, m)
			}
			require.False(t, d.c[0].canData())
			// Nor does data stop it the other way.
			require.EqualValues(t, 0, d.urgent(1, []byte{1}).Ahead)

			require.Equal(t, streamBytes(0, 0, 1000), d.read(1, 1000))
			d.settle()
			assert.EqualValues(t, written-1000, d.urgent(0, []byte("x")).Ahead)
			d.finish()
		})
	}
}

// The mark is where the message was written, also with data that waits here, goes by RDMA, or has been read.
func TestUrgentMark(t *testing.T) {
	for kind := range 2 {
		d := newDuo(t, modelAttrs(kind), modelAttrs(kind))
		assert.EqualValues(t, 0, d.urgent(0, []byte("a")).Ahead, "nothing was written")
		require.Equal(t, 100, d.write(0, make([]byte, 100)))
		assert.EqualValues(t, 100, d.urgent(0, []byte("b")).Ahead)

		d.c[0].sendUrgent([]byte("c"))
		d.settle()
		d.read(1, 100)
		require.Equal(t, 50, d.write(0, make([]byte, 50)))
		d.settle()
		d.read(1, 50)
		m, ok, err := d.c[1].takeUrgent()
		require.NoError(t, err)
		require.True(t, ok)
		assert.EqualValues(t, -50, m.Ahead, "the mark has been passed")

		_, begun := d.c[0].offer(make([]byte, 200_000))
		require.True(t, begun)
		d.settle()
		assert.EqualValues(t, 0, d.urgent(0, []byte("d")).Ahead, "the write under way does not count yet")
		got := make([]byte, 200_000)
		for n := 0; n < len(got); {
			n += d.pull(1, got[n:])
		}
		d.settle()
		require.True(t, d.c[0].outboundOver())
		assert.Equal(t, 200_000, d.c[0].takeOutbound())
		require.Equal(t, 7, d.write(0, make([]byte, 7)))
		assert.EqualValues(t, 7, d.urgent(0, []byte("e")).Ahead)
		d.finish()
	}
}

// What the application does not take stops at a bound, and goes on when it does.
func TestUrgentWindow(t *testing.T) {
	d := newDuo(t, fakeAttr(), fakeAttr())
	for range 3 {
		for i := range urgentWindow {
			require.True(t, d.c[0].canUrgent(1), i)
			d.c[0].sendUrgent([]byte{byte(i)})
			d.settle()
		}
		require.False(t, d.c[0].canUrgent(1))
		require.Equal(t, 10, d.write(0, make([]byte, 10)), "data is not stopped")
		d.settle()
		d.read(1, 10)
		for i := range urgentWindow {
			m, ok, err := d.c[1].takeUrgent()
			require.True(t, ok)
			require.NoError(t, err)
			require.Equal(t, []byte{byte(i)}, m.Data)
		}
		d.settle()
	}
	assert.EqualValues(t, 3*urgentWindow, d.c[0].stats.UrgentSent)
	assert.EqualValues(t, 3*urgentWindow, d.c[1].stats.UrgentReceived)
	d.finish()
}

func TestUrgentEnds(t *testing.T) {
	d := newDuo(t, fakeAttr(), fakeAttr())
	_, ok, err := d.c[1].takeUrgent()
	require.False(t, ok)
	require.NoError(t, err, "there may still be some")
	d.c[0].sendUrgent([]byte("last"))
	d.c[0].closeWrite()
	d.settle()
	m, ok, err := d.c[1].takeUrgent()
	require.True(t, ok)
	require.NoError(t, err)
	assert.Equal(t, "last", string(m.Data))
	_, _, err = d.c[1].takeUrgent()
	assert.Equal(t, io.EOF, err)

	// A reader that has stopped reading stops nobody.
	for range 5 {
		d.c[1].sendUrgent([]byte("before"))
	}
	d.settle()
	d.c[0].closeRead()
	for range 3 * urgentWindow {
		d.settle()
		require.True(t, d.c[1].canUrgent(1))
		d.c[1].sendUrgent([]byte("after"))
	}
	d.settle()
	for range 5 {
		m, ok, err := d.c[0].takeUrgent()
		require.True(t, ok)
		require.NoError(t, err)
		assert.Equal(t, "before", string(m.Data))
	}
	_, _, err = d.c[0].takeUrgent()
	assert.Equal(t, io.EOF, err)

	// Unread urgent data does not make Close a reset; what comes after Close does.
	d.c[1].close()
	d.c[0].close()
	d.settle()
	assert.True(t, isDone(d.c[0]) && isDone(d.c[1]))
	assert.False(t, isBroken(d.c[0]) || isBroken(d.c[1]))
	d.finish()

	d = newDuo(t, fakeAttr(), fakeAttr())
	d.c[0].sendUrgent([]byte("unread"))
	d.settle()
	d.c[1].close()
	d.c[0].sendUrgent([]byte("lost"))
	d.settle()
	assert.True(t, isBroken(d.c[0]) && d.c[1].abortCode == abortReset, "as for data")
	d.finish()
}

// A peer with features that it may have, and one that has not heard of them.
func TestUrgentNegotiated(t *testing.T) {
	d := newDuo(t, fakeAttr(), fakeAttr())
	assert.NotZero(t, d.c[0].features&featureUrgent)
	assert.NotZero(t, d.c[1].features&featureUrgent)
	d.finish()
	h := puppetHello()
	h.features = 1<<31 | featureUrgent
	p := newPuppet(t, fakeAttr(), h, Config{})
	assert.EqualValues(t, featureUrgent, p.c.features, "only what both know")
	p.finish()
	p = newPuppet(t, fakeAttr(), puppetHello(), Config{})
	assert.Zero(t, p.c.features)
	p.finish()
	assert.ErrorIs(t, ErrNoUrgent, errors.ErrUnsupported)
}

func TestUrgentViolations(t *testing.T) {
	type m struct {
		h header
		p []byte
	}
	urge := func(mark uint64, n int) m { return m{header{kind: kindUrgent, arg: mark}, make([]byte, n)} }
	taken := func(n uint64) m { return m{header{kind: kindTaken, arg: n}, nil} }
	flood := make([]m, urgentWindow+1)
	for i := range flood {
		flood[i] = urge(0, 1)
	}
	for name, says := range map[string][]m{
		"empty":             {urge(0, 0)},
		"backwards":         {urge(10, 1), urge(9, 1)},
		"beyond all places": {urge(maxMark+1, 1)},
		"after fin":         {{header{kind: kindFin}, nil}, urge(0, 1)},
		"flood":             flood,
		"taken unsent":      {taken(4)},
		"taken backwards":   {taken(2), taken(1)},
		"taken of nothing":  {taken(1 << 63)},
	} {
		t.Run(name, func(t *testing.T) {
			h := puppetHello()
			h.features = featureUrgent
			p := newPuppet(t, fakeAttr(), h, Config{})
			for range 3 {
				p.c.sendUrgent([]byte{1})
			}
			for i, m := range says {
				require.NoError(t, p.c.err, "before message %d", i)
				m.h.credits = 1
				p.say(m.h, m.p)
			}
			assert.ErrorIs(t, p.c.err, ErrProtocol)
			_, _, err := p.c.takeUrgent()
			for range urgentWindow {
				_, _, err = p.c.takeUrgent()
			}
			assert.True(t, errors.Is(err, ErrProtocol) || err == io.EOF, err)
			p.finish()
		})
	}
	// One that fits no receive buffer as small as they may be is wrong in a large one, too.
	p := newPuppet(t, fakeAttr(), func() hello { h := puppetHello(); h.features = featureUrgent; return h }(), Config{})
	p.say(header{kind: kindNop, flags: flagMore, credits: 1})
	for range 20 {
		p.say(header{kind: kindNop, credits: 1})
	}
	p.say(header{kind: kindUrgent}, make([]byte, maxUrgent+1))
	assert.ErrorIs(t, p.c.err, ErrProtocol)
	p.finish()
}

// FuzzUrgent has a peer say any two urgent messages.
func FuzzUrgent(f *testing.F) {
	f.Add(uint64(0), []byte("a"), uint64(5), []byte("b"))
	f.Add(uint64(maxMark), []byte{}, uint64(maxMark), make([]byte, maxUrgent))
	f.Fuzz(func(t *testing.T, mark1 uint64, p1 []byte, mark2 uint64, p2 []byte) {
		h := puppetHello()
		h.features = featureUrgent
		p := newPuppet(t, fakeAttr(), h, Config{})
		last := uint64(0)
		for i, m := range []struct {
			mark uint64
			p    []byte
		}{{mark1, p1}, {mark2, p2}} {
			good := len(m.p) > 0 && len(m.p) <= maxUrgent && m.mark >= last && m.mark <= maxMark
			if !p.raw(encode(header{kind: kindUrgent, arg: m.mark, credits: 1}, m.p)) {
				break
			}
			p.c.poll()
			require.Equal(t, good, p.c.err == nil, "message %d: %v", i, p.c.err)
			if !good {
				require.ErrorIs(t, p.c.err, ErrProtocol)
				break
			}
			got, ok, err := p.c.takeUrgent()
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, Urgent{append([]byte(nil), m.p...), int64(m.mark)}, got)
			last = m.mark
		}
		p.finish()
	})
}

// An urgent message that finds no memory to leave from waits for it, and for the bytes before it to leave.
func TestUrgentNeedsSlot(t *testing.T) {
	a := fakeAttr()
	a.MaxInline, a.MaxSends = 64, 3
	d := newDuo(t, a, fakeAttr())
	for len(d.c[0].send.free) > 0 && d.c[0].win.control() {
		d.c[0].post(kindNop, 0, 0, 0, make([]byte, 100), false)
	}
	require.Empty(t, d.c[0].send.free)
	for d.w.ends[1].deliver() {
	}
	assert.False(t, d.c[0].canUrgent(100))
	assert.Equal(t, d.c[0].canControl(), d.c[0].canUrgent(40), "a short one goes inline")
	d.settle()
	assert.True(t, d.c[0].canUrgent(100))
	assert.Equal(t, 100, len(d.urgent(0, make([]byte, 100)).Data))
	d.finish()
}

// With both directions stalled, and nobody reading, messages that cross must not use up what lets the next one leave: whatever the
// order of events, each end can send again once all is quiet.
func TestControlPassesTwoStalledDirections(t *testing.T) {
	for seed := range uint64(testSeeds(t, 300)) {
		r := fakeRand(seed)
		d := newDuo(t, modelAttrs(r.IntN(modelKinds)), modelAttrs(r.IntN(modelKinds)), Config{ReadBuffer: DefaultReadBuffer, Threshold: -1})
		for range 10000 {
			if d.write(0, make([]byte, 300))+d.write(1, make([]byte, 300)) == 0 {
				break
			}
			d.settle()
		}
		if r.IntN(2) == 0 { // one reads what there is
			for d.c[1].queued > 0 {
				d.read(1, 500)
				d.settle()
			}
		}
		for range 30 {
			for range r.IntN(12) {
				i := r.IntN(2)
				switch c := d.c[i]; r.IntN(5) {
				case 0, 1:
					if c.canUrgent(1) {
						c.sendUrgent([]byte{1})
					}
				case 2:
					c.takeUrgent()
				case 3:
					c.ping()
				case 4:
					d.w.ends[i].deliver()
					c.poll()
				}
			}
			d.settle()
			for i, c := range d.c {
				for c.urg != nil && c.urg.queue.Len() > 0 {
					c.takeUrgent()
					d.settle()
				}
				require.True(t, d.c[i].canControl(), "seed %d: end %d, credits %d and %d, owed %d and %d",
					seed, i, d.c[0].win.credits, d.c[1].win.credits, d.c[0].ungranted, d.c[1].ungranted)
			}
		}
		d.finish()
	}
}
