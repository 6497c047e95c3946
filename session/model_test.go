package session

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"sansock/provider"
)

// The model test runs random operations on two cores over a fakeWire and checks every byte. The driver below does what
// Conn does, one step at a time and in random order.

// patterns hold the bytes of each direction's stream, over and over. The length has no small factor in common with any
// buffer size, so that bytes in the wrong place show.
var patterns = func() (p [2][]byte) {
	for i := range p {
		p[i] = make([]byte, 1<<20-3)
		r := rand.NewChaCha8([32]byte{byte(i)})
		r.Read(p[i])
	}
	return p
}()

// fill writes the bytes of a stream from pos on.
func fill(b []byte, dir int, pos uint64) {
	for len(b) > 0 {
		n := copy(b, patterns[dir][pos%uint64(len(patterns[dir])):])
		b, pos = b[n:], pos+uint64(n)
	}
}

// matches reports whether b holds the bytes of a stream from pos on.
func matches(b []byte, dir int, pos uint64) bool {
	for len(b) > 0 {
		want := patterns[dir][pos%uint64(len(patterns[dir])):]
		n := min(len(b), len(want))
		if !bytes.Equal(b[:n], want[:n]) {
			return false
		}
		b, pos = b[n:], pos+uint64(n)
	}
	return true
}

// modelEnd drives one core.
type modelEnd struct {
	core
	dir      int
	r        *rand.Rand
	accepted uint64 // bytes whose write returned, or was cut short, counted
	read     uint64
	writing  []byte // rest of the write under way
	offered  []byte // the memory of an offer under way
	first    int
	noRDMA   bool
	buf      []byte
	into     []byte // the Read buffer of a piece under way
	eof      bool
	fin      bool
	readErr  error
	writeErr error
	bad      string
	last     int
	urgents  [2]uint64 // urgent messages sent, received
}

func newModelEnds(t testing.TB, w *fakeWire, seed uint64, cfg Config) [2]*modelEnd {
	cfg.CacheBytes = -1 // or the collector takes part
	var ends [2]*modelEnd
	var n [2]negotiation
	for i := range ends {
		c := newConn(w.ends[i], cfg)
		ends[i] = &modelEnd{core: c.core, dir: i, r: fakeRand(seed*2 + uint64(i))}
		n[i] = negotiation{core: &ends[i].core, side: Side(i)}
	}
	require.NoError(t, n[1].begin())
	require.NoError(t, n[0].begin())
	negotiateModel(t, w, &n)
	return ends
}

// negotiateModel brings two negotiations, which have begun, to their ends.
func negotiateModel(t testing.TB, w *fakeWire, n *[2]negotiation) {
	for range 100 {
		for i := range n {
			w.ends[i].deliver()
			var one [1]provider.Completion
			for !n[i].done && w.ends[i].Poll(one[:]) == 1 {
				require.NoError(t, n[i].step(&one[0]))
			}
		}
	}
	require.True(t, n[0].done && n[1].done, "negotiation ends")
}

// hasten makes the core calm now and then, where it may be, as Conn.settle does. It stays so until something ends that.
func (e *modelEnd) hasten() {
	if !e.fast && e.r.IntN(2) == 0 {
		e.fast = e.canFast()
	}
}

// lock is Conn.lock. What is done without it, here as in Conn, finds out itself that it has ended the calm.
func (e *modelEnd) lock() { e.fast = false }

func (e *modelEnd) poll() int {
	e.hasten()
	return e.core.poll()
}

// check verifies received bytes.
func (e *modelEnd) check(b []byte) {
	if !matches(b, 1-e.dir, e.read) && e.bad == "" {
		e.bad = fmt.Sprintf("end %d: wrong bytes in the %d from %d on", e.dir, len(b), e.read)
	}
	e.read += uint64(len(b))
}

// stepWrite goes on with the write under way, or begins one of n bytes.
func (e *modelEnd) stepWrite(n int) {
	if e.fin || e.writeErr != nil {
		return
	}
	if e.offered != nil {
		e.stepOffer()
		return
	}
	if e.writing == nil {
		if n == 0 {
			return
		}
		e.writing, e.noRDMA = make([]byte, n), false
		fill(e.writing, e.dir, e.accepted)
		e.hasten()
		if e.fast && e.writeFast(e.writing) {
			e.wrote_(n)
			return
		}
	}
	e.lock()
	e.pump()
	if !e.noRDMA && e.useRDMA(len(e.writing)) {
		if first, begun := e.offer(e.writing); begun {
			e.offered, e.first = e.writing, first
			return
		}
		e.noRDMA = e.canData()
	}
	if e.noRDMA || e.canData() || !e.useRDMA(len(e.writing)) {
		m, err := e.write(e.writing)
		e.wrote_(m)
		if err != nil {
			e.writeErr = err
			return
		}
	}
	if e.writing != nil {
		e.block()
	}
}

func (e *modelEnd) wrote_(m int) {
	clear(e.writing[:m]) // the memory is the caller's again
	e.accepted += uint64(m)
	if e.writing = e.writing[m:]; len(e.writing) == 0 {
		e.writing = nil
	}
}

// stepOffer goes on with the offer under way.
func (e *modelEnd) stepOffer() {
	e.lock()
	if op, ok := e.push(); ok {
		e.pushPosted(e.ep.PostWrite(op))
	}
	if e.line.state == lineEnded && !e.outboundOver() {
		e.ep.Close()
		e.poll()
		e.dropOutbound()
	}
	if e.outboundOver() {
		m := e.takeOutbound()
		e.offered = nil
		e.noRDMA = true
		e.wrote_(e.first + m)
	}
}

// giveUp cuts the write under way short, as a deadline does.
func (e *modelEnd) giveUp() {
	e.lock()
	if e.offered != nil {
		e.revokeOutbound()
		return
	}
	e.writing = nil
}

func (e *modelEnd) stepRead(n int) {
	if e.in.over {
		m := e.takePiece()
		e.check(e.into[:m])
		clear(e.into)
		e.into = nil
		return
	}
	if e.into != nil || e.eof || e.readErr != nil {
		return
	}
	if cap(e.buf) < n {
		e.buf = make([]byte, n)
	}
	p := e.buf[:n]
	e.hasten()
	m, err := e.core.read(p)
	e.check(p[:m])
	switch {
	case err == io.EOF:
		e.eof = true
	case err != nil:
		e.readErr = err
	case m == 0:
		if op, begun := e.pull(p); begun {
			if e.in.user {
				e.into = p
			}
			e.postPull(op)
		}
	}
}

func (e *modelEnd) postPull(op provider.RDMA) {
	if op.Local.Bytes != nil {
		e.lock()
		e.pullPosted(e.reader.PostRead(op))
	}
}

func (e *modelEnd) stepBackground() {
	e.lock()
	if e.peerBlocked || e.r.IntN(4) == 0 { // what is early is not wrong
		e.spill()
		e.pump()
	}
	if op, begun := e.pullOwn(); begun {
		e.postPull(op)
	}
}

// look does what Conn does when something may have happened, or it is time to try again.
func (e *modelEnd) look() {
	if e.poll() == 0 && e.late != nil {
		e.lock()
		e.pump()
	}
}

func (e *modelEnd) size() int {
	switch e.r.IntN(10) {
	case 0:
		return 1
	case 1, 2, 3:
		return 1 + e.r.IntN(300)
	case 4, 5, 6:
		return 1 + e.r.IntN(9000)
	case 7, 8:
		return 1 + e.r.IntN(70000)
	default:
		return 1 + e.r.IntN(400000)
	}
}

func (e *modelEnd) step(w *fakeWire) {
	e.last = e.r.IntN(18)
	switch e.last {
	case 0, 1, 2:
		e.stepWrite(e.size())
	case 3, 4, 5:
		e.stepRead(e.size())
	case 6:
		e.stepBackground()
	case 7, 8:
		e.look()
	case 9:
		if e.r.IntN(8) == 0 {
			e.giveUp()
		}
	case 10:
		if e.r.IntN(20) == 0 {
			e.lock()
			e.shrink()
		}
	case 11:
		if e.into != nil && e.r.IntN(4) == 0 {
			e.stopPiece()
		}
	case 16:
		e.stepUrgent()
	case 17:
		e.stepTakeUrgent()
	default:
		for range e.r.IntN(6) {
			w.ends[e.dir].deliver()
		}
	}
}

// modelAttrs are the kinds of providers that the model runs over.
func modelAttrs(kind int) provider.Attributes {
	a := fakeAttr()
	switch kind {
	case 1: // no RDMA read
		a.RDMARead, a.RDMAReadable = false, false
	case 2: // hardware: nothing inline, everything registered, short transfers
		a.MaxInline, a.LocalRegistration, a.MaxRDMA, a.MaxMessage = 0, true, 30000, 8192
	case 3: // small control messages inline, hardware without RDMA read
		a.MaxInline, a.LocalRegistration, a.MaxRDMA = 64, true, 50000
		a.RDMARead, a.RDMAReadable = false, false
	case 4: // large buffers
		a.Buffered = 4 << 20
	case 5: // few receives
		a.MaxRecvs, a.MaxSends, a.MaxMessage = 13, 8, 512
	}
	return a
}

const modelKinds = 6

func TestModelLossless(t *testing.T) {
	for kinds := range modelKinds * modelKinds {
		a, b := kinds/modelKinds, kinds%modelKinds
		t.Run(fmt.Sprintf("%d-%d", a, b), func(t *testing.T) {
			for seed := range uint64(testSeeds(t, 8)) {
				runModel(t, modelAttrs(a), modelAttrs(b), seed, nil)
			}
		})
	}
}

// Providers that have no room for a message at the moment, time and again.
func TestModelQueueFull(t *testing.T) {
	for kinds := range modelKinds * modelKinds {
		for seed := range uint64(testSeeds(t, 4)) {
			a, b := modelAttrs(kinds/modelKinds), modelAttrs(kinds%modelKinds)
			runModel(t, a, b, seed, queueFull(seed))
			runModelHandover(t, a, b, seed, queueFull(seed))
		}
	}
}

// queueFull are the faults of such a provider.
func queueFull(seed uint64) func(step string) provider.Status {
	r := fakeRand(seed + 7000)
	return func(step string) provider.Status {
		if step == "post-send" && r.IntN(3) == 0 {
			return provider.StatusQueueFull
		}
		return provider.StatusOK
	}
}

func runModel(t testing.TB, a, b provider.Attributes, seed uint64, faults func(step string) provider.Status) {
	w := newFakeWire(a, b)
	ends := newModelEnds(t, w, seed, Config{ReadBuffer: 200 << 10})
	w.faults = faults
	r := fakeRand(seed + 1000)
	for range 1500 {
		ends[r.IntN(2)].step(w)
		require.NoError(t, audit(w, ends), "seed %d", seed)
	}
	endModel(t, w, ends, seed)
}

// endModel has everybody finish what is under way, end the stream, and read all.
func endModel(t testing.TB, w *fakeWire, ends [2]*modelEnd, seed uint64, moved ...int) {
	for i := 0; ; i++ {
		if i > 20000 {
			t.Fatalf("seed %d: stuck, broken %v: %v%v", seed, w.broken, describe(ends), wireState(w))
		}
		for _, e := range ends {
			e.stepWrite(0)
			if e.writing == nil && !e.fin {
				e.fin = true
				e.lock()
				e.closeWrite()
			}
			e.stepBackground()
			e.stepRead(50000)
			e.stepTakeUrgent()
			w.ends[e.dir].deliver()
			e.look()
			require.NoError(t, audit(w, ends, moved...), "seed %d, round %d", seed, i)
		}
		if ends[0].eof && ends[1].eof {
			break
		}
	}
	for i, e := range ends {
		require.Empty(t, e.bad)
		require.NoError(t, e.err, "seed %d end %d", seed, i)
		require.Equal(t, e.accepted, ends[1-i].read, "seed %d: bytes of end %d", seed, i)
		for range urgentWindow {
			e.stepTakeUrgent()
		}
		require.Equal(t, e.read, e.readPosition())
		require.Equal(t, ends[1-i].urgents[0], e.urgents[1], "seed %d: urgent messages of end %d", seed, 1-i)
		e.lock()
		e.close()
	}
	for range 1000 {
		for _, e := range ends {
			w.ends[e.dir].deliver()
			e.look()
		}
	}
	for i, e := range ends {
		require.True(t, isDone(&e.core), "seed %d: end %d is done after close", seed, i)
		w.ends[i].Close()
		e.poll()
		e.finish()
		require.Zero(t, w.ends[i].leaks(), "seed %d: registrations of end %d", seed, i)
	}
	require.Empty(t, w.broken)
}

func describe(ends [2]*modelEnd) string {
	s := ""
	for _, e := range ends {
		e.in.dst, e.out.p = nil, nil
		s += fmt.Sprintf("\nend %d: reading %d writing %d peer %d line %d life %d due %x win %+v ungranted %d blocked %v queue %d/%d recv %+v %+v in %+v out %+v err %v writing %d",
			e.dir, e.reading, e.core.writing, e.peer, e.line.state, e.life, e.due, e.win, e.ungranted, e.peerBlocked, e.queue.Len(), e.queued,
			short(e.recv[0]), short(e.recv[1]), e.in, e.out, e.err, len(e.writing))
	}
	return s
}

// wireState lists what is under way.
func wireState(w *fakeWire) (s string) {
	for i, e := range w.ends {
		s += fmt.Sprintf("\nwire %d:", i)
		for _, m := range e.out {
			if m.op == provider.OpSend {
				h, _ := parseHeader(m.data)
				s += fmt.Sprintf(" %v/%x+%d", h.kind, h.flags, h.credits)
			} else {
				s += fmt.Sprintf(" op%d", m.op)
			}
		}
		s += fmt.Sprintf(" cq %d recvs %d", len(e.cq), len(e.recvs))
	}
	return s
}

func short(r receives) string {
	return fmt.Sprintf("{%dx%d posted %d held %d retired %v}", r.count, r.size, r.posted, r.held, r.retired)
}
