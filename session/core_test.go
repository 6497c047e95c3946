package session

import (
	"bytes"
	"io"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/provider"
)

// noGrow are the attributes of a provider with one size of receive region.
func noGrow() provider.Attributes {
	a := fakeAttr()
	a.MaxMessage = minBuffer
	return a
}

func TestDataUsesCreditsDownToTheReserve(t *testing.T) {
	d := newDuo(t, noGrow(), noGrow())
	c := d.c[0]
	require.Equal(t, idleReceives-2, c.win.credits, "those of offer and ready are owed")
	big := streamBytes(0, 0, 100<<10)
	n := d.write(0, big)
	assert.Equal(t, (idleReceives-2-reserve)*(minBuffer-headerSize), n)
	assert.Equal(t, reserve, c.win.credits)
	assert.False(t, c.canData())
	assert.True(t, c.canControl(), "control messages go on")

	c.block()
	c.block() // says it once
	c.ping()  // the last credit is for kindCredit
	d.deliver(0)
	assert.Equal(t, 1, c.win.credits)
	d.settle()
	assert.Equal(t, 5, c.win.credits, "what a control message cost at the bottom is paid back at once")
	assert.True(t, d.c[1].peerBlocked)
	assert.Equal(t, n, d.c[1].queued)

	// What is read is credited when half of the buffers is owed.
	assert.Equal(t, big[:239], d.read(1, 239))
	d.settle()
	assert.Equal(t, 5, c.win.credits)
	assert.Equal(t, big[239:240], d.read(1, 1))
	d.settle()
	assert.Equal(t, 5, c.win.credits)
	assert.Equal(t, big[240:n], d.read(1, 1<<20))
	d.settle()
	assert.Equal(t, idleReceives, c.win.credits+d.c[1].ungranted, "nothing is lost")
	d.finish()
}

func TestControlLeavesTheLastCredit(t *testing.T) {
	d := newDuo(t, noGrow(), noGrow())
	c := d.c[0]
	for c.canControl() {
		c.ping()
	}
	assert.Equal(t, 1, c.win.credits)
	c.ungranted = idleReceives / 2
	c.creditIfDue()
	assert.Zero(t, c.win.credits, "kindCredit may take it")
	c.ungranted = idleReceives
	c.creditIfDue()
	assert.Zero(t, c.win.credits, "without a credit nothing is sent")
	assert.Equal(t, idleReceives, c.ungranted)
}

// Two sides that both have little to say do not keep each other busy.
func TestCreditsComeToRest(t *testing.T) {
	for kind := range modelKinds {
		d := newDuo(t, modelAttrs(kind), modelAttrs(kind))
		for i := range 50 {
			d.write(i%2, []byte{1})
			d.settle() // fails if it never ends
			d.read(1-i%2, 10)
			d.settle()
		}
		d.finish()
	}
}

func TestWindow(t *testing.T) {
	w := window{n: 1, total: 8}
	w.grants[0].size = 256
	require.NoError(t, w.add(8))
	assert.True(t, w.data() && w.control() && !w.short())
	for range 4 {
		w.use()
	}
	assert.True(t, w.data() && w.short())
	w.use()
	w.use()
	assert.True(t, !w.data() && w.control())
	w.use()
	assert.False(t, w.control())

	require.NoError(t, w.resize(16, 8192))
	assert.Equal(t, 1, w.old())
	assert.Equal(t, 256, w.size())
	w.use()
	assert.Equal(t, 0, w.old())
	assert.Equal(t, 8192, w.size(), "the old ones are used up")
	assert.Equal(t, 1, w.n)

	assert.ErrorIs(t, w.add(1<<16), ErrProtocol)
	w = window{n: 1, total: 8, grants: [maxGrants]grant{{8, 256}}, credits: 8}
	assert.ErrorIs(t, w.resize(minReceives-1, 256), ErrProtocol)
	assert.ErrorIs(t, w.resize(minReceives, 255), ErrProtocol)
	for range maxGrants - 1 {
		require.NoError(t, w.resize(6, 256))
	}
	assert.ErrorIs(t, w.resize(6, 256), ErrProtocol, "too many sizes at a time")
}

// Small writes grow the message before them until the peer takes it.
func TestSmallWritesAppend(t *testing.T) {
	d := newDuo(t, noGrow(), noGrow())
	c := d.c[0]
	sent, pos := c.sent, 0
	write := func(n int) {
		for range n {
			require.Equal(t, 1, d.write(0, streamBytes(0, pos, 1)))
			pos++
		}
	}
	write(100)
	assert.EqualValues(t, 1, c.sent-sent)
	d.deliver(0)
	write(100)
	assert.EqualValues(t, 2, c.sent-sent, "the first one is taken")
	d.settle()
	assert.Equal(t, streamBytes(0, 0, 200), d.read(1, 1000))

	d.finish()

	// What has no room is a message of its own, and a control message ends the growing.
	d = newDuo(t, noGrow(), noGrow())
	c = d.c[0]
	sent, pos = c.sent, 0
	write(200)
	require.Equal(t, 100, d.write(0, streamBytes(0, 200, 100)))
	assert.EqualValues(t, 2, c.sent-sent)
	d.settle()
	assert.Equal(t, streamBytes(0, 0, 300), d.read(1, 1000))
	d.finish()

	d = newDuo(t, noGrow(), noGrow())
	c = d.c[0]
	sent, pos = c.sent, 0
	write(2)
	c.ping()
	write(2)
	assert.EqualValues(t, 3, c.sent-sent)
	d.settle()
	assert.Equal(t, streamBytes(0, 0, 4), d.read(1, 1000))
	assert.EqualValues(t, 4, c.stream.written)
	assert.EqualValues(t, 4, d.c[1].arrived)
	d.finish()
}

// Without credits a message still grows, and without room nothing is taken.
func TestAppendNeedsNoCredit(t *testing.T) {
	d := newDuo(t, noGrow(), noGrow())
	c := d.c[0]
	for c.canData() {
		d.write(0, make([]byte, 200))
	}
	require.False(t, c.canData())
	assert.Equal(t, 40, d.write(0, make([]byte, 40)))
	assert.Zero(t, d.write(0, make([]byte, 1)))
	d.finish()
}

// A line whose other end cannot append, or take what was appended to, has a message for each write.
func TestNoAppend(t *testing.T) {
	few := noGrow()
	few.MaxRecvs = 20
	for _, a := range [][2]provider.Attributes{{few, noGrow()}, {few, few}} {
		d := newDuo(t, a[0], a[1])
		sent := d.c[0].sent
		d.write(0, []byte{1})
		d.write(0, []byte{2})
		assert.EqualValues(t, 2, d.c[0].sent-sent)
		d.settle()
		assert.Equal(t, []byte{1, 2}, d.read(1, 10))
		d.finish()
	}
	h := puppetHello() // without features
	p := newPuppet(t, noGrow(), h, Config{})
	p.c.write([]byte{1})
	p.c.write([]byte{2})
	hs, _ := p.heard()
	require.Len(t, hs, 2)
	assert.Zero(t, hs[0].flags&flagOpen)
	p.finish()
}

// The length in the header of a message that may grow is the least; in others it is the length.
func TestOpenMessages(t *testing.T) {
	h := puppetHello()
	h.features = features
	p := newPuppet(t, noGrow(), h, Config{})
	say := func(flags uint8, length uint32) {
		b := encode(header{kind: kindData, flags: flags}, []byte{1, 2, 3})
		header{kind: kindData, flags: flags, length: length}.put(b)
		require.True(t, p.raw(b))
		p.c.poll()
	}
	for _, fast := range []bool{true, false} {
		p.c.fast = fast
		say(flagOpen, 1)
		p.c.fast = fast
		say(flagOpen, 3)
		require.NoError(t, p.c.err)
		assert.Equal(t, 6, p.c.queued)
		p.c.read(make([]byte, 100))
	}
	say(flagOpen, 4)
	assert.ErrorIs(t, p.c.err, ErrProtocol)
	p.finish()
}

// The provider knows whether something is unread, and is told of changes alone.
func TestUnread(t *testing.T) {
	d := newDuo(t, noGrow(), noGrow())
	r, end := d.c[1], d.w.ends[1]
	d.write(0, make([]byte, 300))
	d.settle()
	r.markUnread(false)
	assert.True(t, end.unread)
	d.read(1, 299)
	r.markUnread(false)
	assert.True(t, end.unread)
	end.unread = false
	r.markUnread(false)
	assert.False(t, end.unread, "it is not said again")
	d.read(1, 1)
	r.markUnread(false)
	assert.False(t, r.unread)
	r.markUnread(true)
	assert.True(t, end.unread, "as SetLinger(0) has it")
	r.markUnread(false)
	d.offer(0, make([]byte, 100_000))
	r.markUnread(false)
	assert.True(t, end.unread)
	d.finish()
}

// The end of the peer's process looks as over TCP.
func TestPeerExits(t *testing.T) {
	for _, fin := range []bool{false, true} {
		for status, want := range map[provider.Status]error{provider.StatusExited: io.EOF,
			provider.StatusExitedUnread: syscall.ECONNRESET, provider.StatusDisconnected: syscall.ECONNRESET} {
			d := newDuo(t, fakeAttr(), fakeAttr())
			c := d.c[1]
			d.write(0, []byte("last words"))
			if fin {
				d.c[0].closeWrite()
			}
			d.settle()
			d.w.ends[1].exit(status)
			c.poll()
			require.True(t, isDone(c))
			assert.Equal(t, "last words", string(d.read(1, 100)))
			_, err := c.read(make([]byte, 1))
			if fin {
				want = io.EOF
			}
			assert.Equal(t, want, err, "%v %v", status, fin)
			n, err := c.write([]byte{1})
			if status == provider.StatusExited {
				assert.Equal(t, 1, n)
				assert.NoError(t, err, "the first one is taken")
				_, err = c.write([]byte{1})
			}
			if status == provider.StatusDisconnected && fin {
				assert.Equal(t, syscall.ECONNRESET, err, "a lost link is an error")
			} else {
				assert.Equal(t, syscall.EPIPE, err, "%v %v", status, fin)
			}
			d.finish()
		}
	}
}

func TestDataGoesBeforeFin(t *testing.T) {
	d := newDuo(t, noGrow(), noGrow())
	for i := range 50 {
		d.write(0, streamBytes(0, i, 1))
	}
	d.c[0].closeWrite()
	_, err := d.c[0].write([]byte{1})
	assert.Equal(t, syscall.EPIPE, err)
	d.settle()
	assert.Equal(t, streamBytes(0, 0, 50), d.read(1, 100))
	_, err = d.c[1].read(make([]byte, 1))
	assert.Equal(t, io.EOF, err)

	// The other direction goes on.
	d.write(1, streamBytes(1, 0, 5))
	d.settle()
	assert.Equal(t, streamBytes(1, 0, 5), d.read(0, 100))
	d.finish()
}

// A program that keeps Buffers does not stop the peer.
func TestLentBuffersDoNotStopThePeer(t *testing.T) {
	for _, a := range []provider.Attributes{noGrow(), modelAttrs(5), modelAttrs(2), fakeAttr()} {
		d := newDuo(t, a, a)
		var kept []item
		pos, got := 0, 0
		for range 100 {
			require.Equal(t, 1, d.write(0, streamBytes(0, pos, 1)))
			pos++
			d.settle()
			for {
				it, ok, err := d.c[1].lend()
				require.NoError(t, err)
				if !ok {
					break
				}
				require.Equal(t, streamBytes(0, got, len(it.data)), it.data)
				got += len(it.data)
				kept = append(kept, it)
				d.settle()
			}
			require.Equal(t, pos, got, "all that was written arrives")
		}
		for _, it := range kept {
			d.c[1].returned(it)
		}
		d.finish()
	}
}

func TestCloseDeliversEverything(t *testing.T) {
	for kind := range modelKinds {
		a := modelAttrs(kind)
		d := newDuo(t, a, a)
		n := d.write(0, streamBytes(0, 0, 600))
		d.c[0].close()
		assert.False(t, isDone(d.c[0]), "the peer has not said that it has everything")
		d.settle()
		assert.True(t, isDone(d.c[0]))
		assert.NoError(t, d.c[1].err)
		assert.Equal(t, streamBytes(0, 0, n), d.read(1, 10000))
		_, err := d.c[1].read(make([]byte, 1))
		assert.Equal(t, io.EOF, err)

		// As over TCP, one write is taken and the next one fails.
		_, err = d.c[1].write([]byte{1})
		assert.NoError(t, err)
		_, err = d.c[1].write([]byte{1})
		assert.Equal(t, syscall.EPIPE, err)
		d.c[1].close()
		assert.True(t, isDone(d.c[1]))
		d.finish()
	}
}

func TestCloseOfBoth(t *testing.T) {
	d := newDuo(t, fakeAttr(), fakeAttr())
	d.c[0].close()
	d.c[1].close()
	d.settle()
	assert.True(t, isDone(d.c[0]))
	assert.True(t, isDone(d.c[1]))
	assert.NoError(t, d.c[0].err)
	assert.NoError(t, d.c[1].err)
	d.finish()
}

func TestCloseWithUnreadDataResets(t *testing.T) {
	d := newDuo(t, fakeAttr(), fakeAttr())
	d.write(0, []byte("unread"))
	d.settle()
	d.c[1].close()
	d.pump()
	assert.True(t, isDone(d.c[1]))
	d.settle()
	assert.True(t, isDone(d.c[0]))
	_, err := d.c[0].read(make([]byte, 1))
	assert.Equal(t, syscall.ECONNRESET, err)
	_, err = d.c[0].read(make([]byte, 1))
	assert.Equal(t, io.EOF, err, "the error is reported once")
	_, err = d.c[0].write([]byte{1})
	assert.Equal(t, syscall.EPIPE, err)
	d.finish()
}

func TestDataAfterCloseResets(t *testing.T) {
	for _, n := range []int{100, 100 << 10} {
		d := newDuo(t, fakeAttr(), fakeAttr())
		d.c[1].close()
		if n >= d.c[0].threshold {
			_, begun := d.c[0].offer(make([]byte, n))
			require.True(t, begun)
		} else {
			d.write(0, make([]byte, n)) // crosses the close
		}
		d.settle()
		assert.True(t, isDone(d.c[0]) && isDone(d.c[1]))
		assert.True(t, isBroken(d.c[0]), "the writer learns that its data was lost")
		d.finish()
	}
}

// A reset is reported by whatever call comes first, also by a large write.
func TestResetIsReportedByWrite(t *testing.T) {
	for _, n := range []int{1, 100 << 10} {
		d := newDuo(t, fakeAttr(), fakeAttr())
		d.c[1].abort(abortReset)
		d.deliver(1)
		c := d.c[0]
		if c.useRDMA(n) {
			_, begun := c.offer(make([]byte, n))
			assert.False(t, begun)
		}
		r, err := c.ep.Allocate(headerSize + 100)
		require.NoError(t, err)
		assert.False(t, c.sendBuffer(r, 100))
		c.ep.Deregister(r.Handle)
		_, err = c.write(make([]byte, n))
		assert.Equal(t, syscall.ECONNRESET, err)
		_, err = c.write(make([]byte, n))
		assert.Equal(t, syscall.EPIPE, err)
		d.finish()
	}
}

func TestAbortTellsThePeer(t *testing.T) {
	for code, want := range map[uint64]error{abortReset: syscall.ECONNRESET, abortProtocol: syscall.ECONNRESET,
		abortFailed: syscall.ECONNRESET, abortTimeout: syscall.ETIMEDOUT, 99: syscall.ECONNRESET} {
		d := newDuo(t, fakeAttr(), fakeAttr())
		d.c[0].abort(code)
		d.settle()
		assert.True(t, isDone(d.c[0]) && isDone(d.c[1]))
		_, err := d.c[1].read(make([]byte, 1))
		assert.Equal(t, want, err)
		d.finish()
	}
}

func TestAbortAfterFinOnlyBreaksWriting(t *testing.T) {
	d := newDuo(t, fakeAttr(), fakeAttr())
	d.c[0].closeWrite()
	d.settle()
	d.c[0].abort(abortReset)
	d.settle()
	_, err := d.c[1].read(make([]byte, 1))
	assert.Equal(t, io.EOF, err)
	d.finish()
}

// What arrived before the connection broke can be read.
func TestDataBeforeAResetIsRead(t *testing.T) {
	d := newDuo(t, fakeAttr(), fakeAttr())
	d.write(0, []byte("before"))
	d.w.ends[0].Close()
	d.settle()
	assert.Equal(t, []byte("before"), d.read(1, 100))
	_, err := d.c[1].read(make([]byte, 1))
	assert.Equal(t, syscall.ECONNRESET, err)
	d.finish()
}

func TestCloseReadDrops(t *testing.T) {
	d := newDuo(t, fakeAttr(), fakeAttr())
	d.write(0, []byte("before"))
	d.settle()
	d.c[1].closeRead()
	for i := range 100 { // more than there are buffers
		require.Equal(t, 200, d.write(0, make([]byte, 200)), "write %d", i)
		d.settle()
	}
	_, begun := d.c[0].offer(make([]byte, 1<<20))
	require.True(t, begun)
	d.settle()
	require.True(t, d.c[0].outboundOver(), "an offer is dropped, too")
	assert.Equal(t, 1<<20, d.c[0].takeOutbound())
	assert.Equal(t, []byte("before"), d.read(1, 100), "what had arrived can be read")
	_, err := d.c[1].read(make([]byte, 1))
	assert.Equal(t, io.EOF, err)
	d.finish()
}

// A Write that waits is told to the peer once that can leave, if it could not at first.
func TestBlockedIsToldLater(t *testing.T) {
	p := newPuppet(t, fakeAttr(), puppetHello(), Config{})
	n, err := p.c.write(make([]byte, 10_000))
	require.NoError(t, err)
	require.Less(t, n, 10_000)
	require.Equal(t, reserve, p.c.win.credits)
	p.heard()
	for p.c.canControl() {
		p.c.win.use()
	}
	p.c.block()
	assert.Empty(t, p.kinds(), "the last credit is not for this")
	p.say(header{kind: kindCredit, credits: 1})
	hs, _ := p.heard()
	require.Len(t, hs, 1)
	assert.Equal(t, kindNop, hs[0].kind)
	assert.NotZero(t, hs[0].flags&flagBlocked)
	p.say(header{kind: kindCredit, credits: 1})
	assert.Empty(t, p.kinds(), "once is enough")
	p.finish()

	// And not at all once that is over.
	p = newPuppet(t, fakeAttr(), puppetHello(), Config{})
	p.c.write(make([]byte, 10_000))
	for p.c.canControl() {
		p.c.win.use()
	}
	p.c.block()
	p.heard()
	p.say(header{kind: kindCredit, credits: 8})
	assert.Empty(t, p.kinds())
	p.finish()
}

func TestPing(t *testing.T) {
	p := newPuppet(t, fakeAttr(), puppetHello(), Config{})
	for _, arg := range []uint64{0, 1, 1<<64 - 1} {
		p.say(header{kind: kindPing, arg: arg})
		hs, _ := p.heard()
		require.Len(t, hs, 1)
		assert.Equal(t, kindPong, hs[0].kind)
		assert.Equal(t, arg, hs[0].arg)
	}
	p.c.ping()
	assert.Equal(t, []kind{kindPing}, p.kinds())
	p.say(header{kind: kindPong, arg: 77}) // whatever its argument
	assert.NoError(t, p.c.err)
	p.finish()
}

func TestGrow(t *testing.T) {
	d := newDuo(t, fakeAttr(), fakeAttr())
	pos := 0
	flow := func(n int) {
		want := streamBytes(0, pos, n)
		var got []byte
		for rest := want; len(got) < len(want); {
			rest = rest[d.write(0, rest):]
			d.settle()
			got = append(got, d.read(1, 1<<20)...)
			d.settle()
		}
		assert.True(t, bytes.Equal(want, got))
		pos += n
	}
	c := d.c[1]
	for i, size := range []int{smallBuffer, busyBuffer} {
		flow(10_000) // the first message that is cut in two asks for more
		if i > 0 {
			assert.Equal(t, 1, c.level, "little flows")
			flow(2 * sustained * smallReceives * smallBuffer)
		}
		assert.Equal(t, i+1, c.level)
		assert.Equal(t, size, d.c[0].win.size())
		assert.False(t, c.recv[1-c.cur].live(), "the old region is gone")
		assert.Equal(t, 1, d.w.ends[1].leaks(), "one region")
		assert.Equal(t, 0, d.c[0].level, "the other direction stays small")
	}
	d.finish()
}

// One write that just fills the small region grows it; the connection must still come down again when it is idle.
func TestShrink(t *testing.T) {
	for kind := range modelKinds {
		for n := 1200; n <= 20000; n += 231 {
			a := modelAttrs(kind)
			d := newDuo(t, a, a)
			c := d.c[1]
			var got []byte
			want := streamBytes(0, 0, n)
			for rest := want; len(got) < n; {
				rest = rest[d.write(0, rest):]
				d.settle()
				got = append(got, d.read(1, 1<<20)...)
				d.settle()
			}
			require.True(t, bytes.Equal(want, got))
			c.shrink()
			c.pump()
			d.settle()
			require.Equal(t, 0, c.level, "kind %d size %d", kind, n)
			require.Equal(t, c.levels[0], level{c.recv[c.cur].count, c.recv[c.cur].size})
			require.False(t, c.recv[1-c.cur].live(), "kind %d size %d: %v", kind, n, short(c.recv[1-c.cur]))
			require.LessOrEqual(t, d.c[0].send.size, minBuffer, "the send region is small again")

			require.Equal(t, 5, d.write(0, []byte("still")))
			d.settle()
			require.Equal(t, []byte("still"), d.read(1, 10))
			d.finish()
		}
	}
}

func TestShrinkWaitsForUnreadData(t *testing.T) {
	d := newDuo(t, fakeAttr(), fakeAttr())
	d.write(0, make([]byte, 4000))
	d.settle()
	require.Equal(t, 1, d.c[1].level)
	d.c[1].shrink()
	d.settle()
	assert.Equal(t, 1, d.c[1].level)
	d.read(1, 1<<20)
	d.settle()
	d.finish()
}

func TestGrowWithoutMemory(t *testing.T) {
	d := newDuo(t, fakeAttr(), fakeAttr())
	d.w.faults = func(step string) provider.Status {
		if step == "allocate" {
			return provider.StatusNoMemory
		}
		return provider.StatusOK
	}
	got := 0
	for got < 50<<10 {
		d.write(0, make([]byte, 10<<10))
		d.settle()
		got += len(d.read(1, 1<<20))
		d.settle()
	}
	assert.NoError(t, d.c[1].err)
	assert.Equal(t, 0, d.c[1].level)
	assert.EqualValues(t, 1, d.c[1].stats.GrowFailures, "it is tried once")
	d.w.faults = nil
	d.finish()
}

// Memory that comes back is made use of: a connection is not small for ever. Trying costs less and less.
func TestGrowLater(t *testing.T) {
	d := newDuo(t, fakeAttr(), fakeAttr())
	c := d.c[1]
	d.w.faults = func(step string) provider.Status {
		if step == "allocate" {
			return provider.StatusNoMemory
		}
		return provider.StatusOK
	}
	flow := func(total int) {
		t.Helper()
		for total > 0 {
			d.write(0, make([]byte, 10<<10))
			d.settle()
			total -= len(d.read(1, 1<<20))
			d.settle()
		}
		require.NoError(t, c.err)
	}
	flow(2*growAgain - 50<<10)
	assert.EqualValues(t, 2, c.stats.GrowFailures)
	flow(2 * growAgain)
	assert.EqualValues(t, 3, c.stats.GrowFailures)
	c.sinceGrow = 1 << 30
	c.grow()
	assert.EqualValues(t, 4, c.stats.GrowFailures)
	assert.Equal(t, 1<<30+256*growAgain, c.growAt)
	d.w.faults = nil
	c.sinceGrow = c.growAt
	flow(1)
	assert.Equal(t, 1, c.level)
	d.finish()
}

// Half of the receives of the new region cannot be posted: there is no way back.
func TestGrowPostFails(t *testing.T) {
	for _, n := range []int{1, 2, smallReceives} {
		d := newDuo(t, fakeAttr(), fakeAttr())
		d.w.faults = nth("post-recv", n, provider.StatusQueueFull)
		d.c[1].grow()
		d.w.faults = nil
		d.settle()
		if n == 1 {
			assert.NoError(t, d.c[1].err)
			d.write(0, []byte("x"))
			d.settle()
			assert.Equal(t, []byte("x"), d.read(1, 1))
		} else {
			assert.Equal(t, provider.StatusQueueFull, d.c[1].err)
			assert.Equal(t, syscall.ECONNRESET, d.c[0].err)
		}
		d.finish()
	}
}

// Without memory for larger messages they stay as small as they are, but go on.
func TestSendRegionCannotGrow(t *testing.T) {
	for _, inline := range []int{0, 60, 256, 300, 1000, 9000} {
		a := fakeAttr()
		a.MaxInline = inline
		d := newDuo(t, a, fakeAttr())
		fail := false
		d.w.faults = func(step string) provider.Status {
			if fail && step == "allocate" {
				return provider.StatusNoMemory
			}
			return provider.StatusOK
		}
		require.Less(t, d.write(0, make([]byte, 3000)), 3000)
		for d.w.ends[0].deliver() {
		}
		d.c[1].poll() // grows
		require.Equal(t, 1, d.c[1].level)
		fail = true
		want := streamBytes(0, 3000, 30<<10)
		d.read(1, 1<<20)
		got := 0
		for range 1000 {
			if got < len(want) {
				got += d.write(0, want[got:])
			}
			d.settle()
			d.read(1, 1<<20)
		}
		assert.Equal(t, len(want), got, "inline %d", inline)
		d.finish()
	}
}

// The region of outgoing messages follows the peer's buffers also when messages are on their way all the time.
func TestSendRegionGrowsUnderLoad(t *testing.T) {
	a := modelAttrs(2)
	d := newDuo(t, a, fakeAttr())
	c := d.c[0]
	for range 2000 {
		if c.canData() {
			d.write(0, make([]byte, 50<<10))
		}
		d.w.ends[0].deliver() // one at a time: there is always one on its way
		d.c[1].poll()
		d.read(1, 1<<20)
		d.w.ends[1].deliver()
		c.poll()
	}
	assert.Equal(t, len(d.c[1].levels)-1, d.c[1].level)
	assert.Equal(t, a.MaxMessage, c.send.size)
	d.settle()
	d.read(1, 1<<20)
	d.finish()
}

// A peer that announces huge buffers does not make us register memory for them.
func TestSendRegionIsBounded(t *testing.T) {
	a := modelAttrs(2)
	a.MaxMessage = 1 << 20
	h := puppetHello()
	p := newPuppet(t, a, h, Config{})
	p.say(header{kind: kindResize, credits: 16, arg: 1 << 20})
	p.listen()
	p.c.poll()
	sum := 0
	for _, r := range p.w.ends[0].regs {
		sum += len(r.b)
	}
	assert.LessOrEqual(t, sum, 2*busyReceives*busyBuffer)
	p.finish()
}

// A failed inline send is reported although it has no slot.
func TestInlineSendFails(t *testing.T) {
	a := fakeAttr()
	a.MaxInline = 100 // control messages go inline, others from slots
	for _, s := range []provider.Status{provider.StatusNotReady, provider.StatusAborted} {
		d := newDuo(t, a, fakeAttr())
		c := d.c[0]
		free := len(c.send.free)
		c.ping()
		ctx := d.w.ends[0].out[0].ctx
		d.w.ends[0].out = nil
		d.w.ends[0].complete(provider.Completion{Context: ctx, Op: provider.OpSend, Status: s}, true)
		c.poll()
		assert.Len(t, c.send.free, free)
		assert.Zero(t, c.inFlight)
		d.finish()
	}
}

// Data leaves one slot of the send region to control messages, and a Buffer that is sent keeps within what may be posted.
func TestSlotsForControl(t *testing.T) {
	a := modelAttrs(2)
	a.MaxSends = 4
	d := newDuo(t, a, fakeAttr())
	c := d.c[0]
	c.win.grants[0].count, c.win.credits = 100, 100 // credits are not what stops it
	require.Less(t, d.write(0, make([]byte, 4000)), 4000)
	assert.Equal(t, 3, c.inFlight)
	assert.False(t, c.canData())
	assert.True(t, c.canControl())
	r, err := c.ep.Allocate(headerSize + 100)
	require.NoError(t, err)
	assert.False(t, c.sendBuffer(r, 100), "the fourth is for control")
	c.ep.Deregister(r.Handle)
	c.ping()
	assert.Equal(t, 4, c.inFlight)
	assert.False(t, c.canControl())
	d.w.ends[0].out = nil
	d.finish()
}

// A provider that takes one message at a time from registered memory is used for inline messages alone, also when the peer's
// buffers have grown.
func TestOneSendBesideInline(t *testing.T) {
	a := fakeAttr()
	a.MaxInline, a.MaxSends, a.RDMAThreshold = minBuffer, 1, 0
	d := newDuo(t, a, fakeAttr())
	want := streamBytes(0, 0, 100_000)
	var got []byte
	for sent := 0; len(got) < len(want); {
		before := len(got)
		sent += d.write(0, want[sent:])
		d.settle()
		got = append(got, d.read(1, 1<<20)...)
		d.settle()
		require.Greater(t, len(got), before, "stuck")
	}
	assert.True(t, bytes.Equal(want, got))
	assert.NotZero(t, d.c[1].level)
	d.finish()
}

// Where there was no room for what nobody reads, there is some once something is read.
func TestRoomAfterReading(t *testing.T) {
	d := newDuo(t, fakeAttr(), fakeAttr(), Config{ReadBuffer: minReadBuffer})
	c := d.c[1]
	for sent := 0; sent < 40_000 && !c.full; {
		sent += d.write(0, make([]byte, 3000))
		d.c[0].block()
		d.settle()
		c.spill()
		c.pump()
		d.settle()
	}
	require.True(t, c.full && c.peerBlocked)
	assert.False(t, c.behind(), "nothing can be done")
	d.read(1, 3500)
	assert.True(t, c.behind())
	d.finish()
}

// A Read and a Write are woken for what they can act on.
func TestWhoIsWoken(t *testing.T) {
	d := writeModeDuo(t)
	for _, c := range d.c {
		assert.False(t, c.readable())
		assert.True(t, c.writable())
	}
	d.offer(0, make([]byte, 80_000))
	assert.False(t, d.c[0].writable(), "waits for a target")
	assert.True(t, d.c[1].readable())
	_, begun := d.c[1].pull(make([]byte, 40_000))
	require.True(t, begun)
	d.c[1].closeRead()
	assert.False(t, d.c[1].readable(), "its memory is in use, whatever else there is")
	d.deliver(1)
	assert.True(t, d.c[0].writable())
	op, ok := d.c[0].push()
	require.True(t, ok)
	d.c[0].pushPosted(d.w.ends[0].PostWrite(op))
	assert.False(t, d.c[0].writable(), "waits for the end of its RDMA write")
	d.deliver(0)
	assert.True(t, d.c[0].writable())
	d.settlePushing()
	assert.True(t, d.c[1].readable())
	d.c[1].takePiece()
	d.settle()
	assert.True(t, d.c[0].outboundOver() && d.c[0].writable())
	d.c[0].takeOutbound()
	d.finish()
}
