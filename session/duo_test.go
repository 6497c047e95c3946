package session

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"sansock/provider"
)

// duo is two cores with a session between them, driven step by step.
type duo struct {
	t testing.TB
	w *fakeWire
	c [2]*core
}

// newDuo returns two cores that have negotiated. Config may be given once for both.
func newDuo(t testing.TB, a, b provider.Attributes, cfg ...Config) *duo {
	t.Helper()
	c := Config{ReadBuffer: DefaultReadBuffer}
	if len(cfg) > 0 {
		c = cfg[0]
	}
	w := newFakeWire(a, b)
	ends := newModelEnds(t, w, 0, c)
	d := &duo{t: t, w: w, c: [2]*core{&ends[0].core, &ends[1].core}}
	d.settle()
	return d
}

// settle delivers and polls until nothing moves any more.
func (d *duo) settle() {
	d.t.Helper()
	d.pump()
	for range 100000 {
		moved := false
		for i, c := range d.c {
			for d.w.ends[i].deliver() {
				moved = true
			}
			moved = c.poll() > 0 || moved
		}
		if !moved {
			return
		}
	}
	d.t.Fatal("the two ends never come to rest")
}

// pump sends what is due, as Conn does after each operation.
func (d *duo) pump() {
	for _, c := range d.c {
		c.pump()
	}
}

// deliver moves what end i has posted, and has both poll once.
func (d *duo) deliver(i int) {
	d.pump()
	for d.w.ends[i].deliver() {
	}
	d.c[0].poll()
	d.c[1].poll()
}

// write has end i write p in messages, as far as that is possible at once.
func (d *duo) write(i int, p []byte) int {
	d.t.Helper()
	n, err := d.c[i].write(p)
	require.NoError(d.t, err)
	return n
}

// read returns what end i can read now, at most n bytes, without pulling.
func (d *duo) read(i, n int) []byte {
	d.t.Helper()
	p := make([]byte, min(n, max(1, d.c[i].queued)))
	m, err := d.c[i].read(p)
	require.NoError(d.t, err)
	return p[:m]
}

// pull fetches a piece into p as Read does, and returns how many bytes that brought.
func (d *duo) pull(i int, p []byte) int {
	d.t.Helper()
	c := d.c[i]
	op, begun := c.pull(p)
	if !begun {
		return 0
	}
	user := c.in.user
	if op.Local.Bytes != nil {
		c.pullPosted(c.reader.PostRead(op))
	}
	d.settlePushing()
	if user {
		require.True(d.t, c.in.over, "the piece ends")
		return c.takePiece()
	}
	m, err := c.read(p)
	require.NoError(d.t, err)
	return m
}

// settlePushing is settle with RDMA writes made as they become possible.
func (d *duo) settlePushing() {
	d.t.Helper()
	for range 1000 {
		d.settle()
		begun := false
		for i, c := range d.c {
			if op, ok := c.push(); ok {
				c.pushPosted(d.w.ends[i].PostWrite(op))
				begun = true
			}
		}
		if !begun {
			return
		}
	}
	d.t.Fatal("the two ends never come to rest")
}

// finish closes the endpoints, releases everything and checks that nothing is left and no rule was broken.
func (d *duo) finish(allowed ...string) {
	d.t.Helper()
	for i, c := range d.c {
		finish(d.t, d.w, i, c)
	}
	requireRules(d.t, d.w, allowed...)
}

// finish ends one core as Conn does, and checks that nothing is left.
func finish(t testing.TB, w *fakeWire, i int, c *core) {
	t.Helper()
	w.ends[i].Close()
	c.lineClosed()
	c.finish()
	require.Zero(t, w.ends[i].leaks(), "registrations of end %d", i)
	require.Zero(t, c.queue.Len())
	require.Zero(t, c.queued)
	require.Zero(t, c.spilled)
}

func requireRules(t testing.TB, w *fakeWire, allowed ...string) {
	t.Helper()
next:
	for _, b := range w.broken {
		for _, a := range allowed {
			if b == a {
				continue next
			}
		}
		t.Fatalf("the session broke a rule: %s", b)
	}
}

// puppet is the far end of a core under test: it sends what the test says. It keeps to the rules of the provider alone.
type puppet struct {
	t    testing.TB
	w    *fakeWire
	conn *Conn // whose core it is
	c    *core // the core under test, at end 0
	ep   *fakeEnd
	got  [][]byte // messages of the core's
}

// newPuppet returns a core with attributes a, which has negotiated as a listener with a peer that announced h.
func newPuppet(t testing.TB, a provider.Attributes, h hello, cfg Config) *puppet {
	t.Helper()
	p := startPuppet(t, a, cfg)
	n := negotiation{core: p.c, side: Listener}
	require.NoError(t, n.begin())
	h.kind, h.minVersion, h.maxVersion = helloOffer, version, version
	p.raw(h.append(nil))
	p.step(&n)
	p.raw(encode(header{kind: kindReady}))
	p.step(&n)
	require.True(t, n.done)
	require.Len(t, p.got, 1)
	p.got = nil
	return p
}

// startPuppet returns one before the negotiation.
func startPuppet(t testing.TB, a provider.Attributes, cfg Config) *puppet {
	if cfg.ReadBuffer == 0 {
		cfg.ReadBuffer = DefaultReadBuffer
	}
	cfg.CacheBytes = -1 // or the collector takes part
	w := newFakeWire(a, fakeAttr())
	conn := newConn(w.ends[0], cfg)
	p := &puppet{t: t, w: w, conn: conn, c: &conn.core, ep: w.ends[1]}
	p.ep.tap = func(b []byte) { p.got = append(p.got, bytes.Clone(b)) }
	return p
}

// puppetHello is a usual one.
func puppetHello() hello {
	return hello{receives: 8, size: minBuffer, modes: modeReader | modeReadable}
}

// step brings the negotiation on as far as it goes.
func (p *puppet) step(n *negotiation) {
	p.t.Helper()
	for !n.done && p.w.ends[0].Poll(p.c.cq[:1]) == 1 {
		require.NoError(p.t, n.step(&p.c.cq[0]))
		p.listen()
	}
}

// listen has what the core posted arrive.
func (p *puppet) listen() {
	for p.w.ends[0].deliver() {
	}
}

// raw sends bytes, if the core has a receive that they fit into. It reports whether it has.
func (p *puppet) raw(b []byte) bool {
	to := p.w.ends[0]
	if len(to.recvs) == 0 || len(to.recvs[0].Buffer.Bytes) < len(b) || to.closed {
		return false
	}
	faults := p.w.faults
	p.w.faults = nil // are for the core
	err := p.ep.PostSend(provider.Send{Inline: [2][]byte{b, nil}, Solicited: true})
	p.w.faults = faults
	if err != nil {
		return false
	}
	for p.ep.deliver() {
	}
	return true
}

// say sends a message and has the core act on it.
func (p *puppet) say(h header, payload ...[]byte) {
	p.t.Helper()
	require.True(p.t, p.raw(encode(h, payload...)), "the core has a receive posted")
	p.c.poll()
	p.listen()
}

// heard returns what the core has sent since the last call.
func (p *puppet) heard() (hs []header, payloads [][]byte) {
	p.t.Helper()
	p.c.pump()
	p.listen()
	for _, b := range p.got {
		h, err := parseHeader(b)
		require.NoError(p.t, err, "what the core sends is well-formed")
		hs, payloads = append(hs, h), append(payloads, b[headerSize:])
	}
	p.got = nil
	return hs, payloads
}

// kinds is heard without the details.
func (p *puppet) kinds() (ks []kind) {
	p.t.Helper()
	hs, _ := p.heard()
	for _, h := range hs {
		ks = append(ks, h.kind)
	}
	return ks
}

// finish ends the core and checks what is left.
func (p *puppet) finish(allowed ...string) {
	p.t.Helper()
	finish(p.t, p.w, 0, p.c)
	requireRules(p.t, p.w, allowed...)
}

// encode returns the bytes of a message.
func encode(h header, payload ...[]byte) []byte {
	b := make([]byte, headerSize)
	for _, p := range payload {
		b = append(b, p...)
	}
	h.length = uint32(len(b) - headerSize)
	h.put(b)
	return b
}

func (o offer) bytes() []byte  { b := make([]byte, offerSize); o.put(b); return b }
func (t target) bytes() []byte { b := make([]byte, targetSize); t.put(b); return b }
func count(n uint64) []byte    { return binary.LittleEndian.AppendUint64(nil, n) }

// stream returns n bytes of direction dir from pos on.
func streamBytes(dir int, pos, n int) []byte {
	b := make([]byte, n)
	fill(b, dir, uint64(pos))
	return b
}

// memory is what the core keeps for data that nobody has read: the buffers themselves, not the bytes in them.
func memory(c *core) (own int) {
	for i := range c.queue.Len() {
		if it := c.queue.At(i); it.gen < 0 {
			own += cap(it.own)
		}
	}
	if c.in.dst != nil && !c.in.user {
		own += cap(c.in.dst)
	}
	return own + c.queue.Len()*itemSize
}

const itemSize = 64

// sane checks what holds at all times. moved is what a hand-over may have moved from receive buffers into our own.
func sane(c *core, moved ...int) error {
	queued, spilled, held := 0, 0, [2]int{}
	for i := range c.queue.Len() {
		it := c.queue.At(i)
		queued += len(it.data)
		if it.gen < 0 {
			spilled += len(it.data)
		} else {
			held[it.gen]++
		}
	}
	switch {
	case queued != c.queued:
		return fmt.Errorf("%d bytes are queued, not %d", queued, c.queued)
	case spilled != c.spilled:
		return fmt.Errorf("%d bytes are in buffers of our own, not %d", spilled, c.spilled)
	case spilled > c.readBuffer+ownPiece+sum(moved):
		return fmt.Errorf("%d bytes are in buffers of our own, allowed are %d", spilled, c.readBuffer)
	case held[0]+held[1]+c.lent != c.recv[0].held+c.recv[1].held:
		return fmt.Errorf("%v receive buffers are queued and %d lent, not %d, %d", held, c.lent, c.recv[0].held, c.recv[1].held)
	case c.win.credits < 0 || c.ungranted < 0 || c.inFlight < 0 || c.out.pieces < 0:
		return fmt.Errorf("credits %d owed %d in flight %d pieces %d", c.win.credits, c.ungranted, c.inFlight, c.out.pieces)
	case c.fast && !c.canFast():
		return errors.New("on the fast path, and must not be")
	}
	return nil
}

func sum(ns []int) (total int) {
	for _, n := range ns {
		total += n
	}
	return total
}
