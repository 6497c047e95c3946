package session

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/provider"
)

// script is a source of decisions: the bytes of a fuzz input.
type script []byte

func (s *script) byte() byte {
	if len(*s) == 0 {
		return 0
	}
	b := (*s)[0]
	*s = (*s)[1:]
	return b
}

func (s *script) take(n int) []byte {
	n = min(n, len(*s))
	b := (*s)[:n]
	*s = (*s)[n:]
	return b
}

var hostileMemory [100 << 10]byte

// runHostile has a peer say, and an application do, what the script tells.
func runHostile(t testing.TB, s script) {
	first := s.byte()
	a := modelAttrs(int(first&15) % modelKinds)
	polite := first&16 != 0
	h := puppetHello()
	modes := s.byte()
	h.modes, h.features = modes&3, uint32(modes>>2)&features
	const readBuffer = 32 << 10
	p := newPuppet(t, a, h, Config{ReadBuffer: readBuffer, Provider: fakeProvider{}})
	e := &modelEnd{core: *p.c, r: fakeRand(1)}
	p.c = &e.core
	// Memory of the peer's, with the handles 1 and 2, that descriptors can name.
	for _, n := range []int{100, 100 << 10} {
		_, err := p.ep.Expose(hostileMemory[:n], provider.RightRead|provider.RightWrite)
		require.NoError(t, err)
	}
	granted, heard := int64(h.receives)-1, int64(0)
	var lent []item
	limit := 3*readBuffer + 4*spillChunk + 2*ownPiece + 64<<10

	for len(s) > 0 && !isDone(p.c) {
		switch op := s.byte(); op % 8 {
		case 0, 1, 2: // a message whose length is right
			h := header{kind: kind(s.byte()), flags: s.byte(), credits: uint16(s.byte())}
			if op&known != 0 { // about the transfer that is under way
				if h.arg = p.c.out.id; h.kind == kindWrote || h.kind == kindRevoke {
					h.arg = p.c.in.id
				}
			} else {
				var arg [8]byte
				copy(arg[:], s.take(int(op>>3)%9))
				h.arg = binary.LittleEndian.Uint64(arg[:])
			}
			payload := s.take(int(s.byte()))
			if polite && !allowed(p.c, h, payload) {
				break
			}
			if p.raw(encode(h, payload)) {
				granted += int64(h.credits)
				if h.kind == kindResize {
					granted += int64(h.arg >> 32)
				}
			}
		case 3: // any bytes
			b := s.take(int(s.byte()))
			if p.raw(b) && len(b) >= headerSize {
				granted += 1<<16 + 1<<32
			}
		case 4:
			e.stepRead(1 + int(s.byte())<<(op>>4))
		case 5:
			e.stepWrite(1 + int(s.byte())<<(op>>4))
		case 6:
			e.lock()
			switch op >> 3 % 8 {
			case 0:
				e.stepBackground()
			case 1:
				e.giveUp()
			case 2:
				p.c.stopPiece()
			case 3:
				p.c.shrink()
				p.c.pump()
			case 4:
				if !e.fin {
					e.fin = true
					p.c.closeWrite()
				}
			case 5:
				p.c.closeRead()
			case 6:
				p.c.ping()
			case 7:
				if s.byte() == 0 {
					e.fin = true
					p.c.close()
				}
			}
		case 7:
			e.lock()
			switch op >> 3 {
			case 1:
				if s.byte() == 1 { // the next operation fails
					n := 1
					p.w.faults = func(string) provider.Status {
						if n--; n == 0 {
							return provider.StatusLink
						}
						return provider.StatusOK
					}
				}
			case 2:
				if s.byte() == 1 {
					p.ep.Close()
					p.ep.deliver()
				}
			case 3:
				if it, ok, _ := p.c.lend(); ok {
					lent = append(lent, it)
				} else if len(lent) > 0 {
					p.c.returned(lent[0])
					lent = lent[1:]
				}
			case 4:
				p.c.takeUrgent()
			case 5:
				if n := 1 + int(s.byte())%maxUrgent; p.c.features&featureUrgent != 0 && !p.c.writeOver() && p.c.canUrgent(n) {
					p.c.sendUrgent(make([]byte, n))
				}
			case 6:
				p.c.suspend()
			case 7:
				if p.c.susp != nil {
					p.c.stay(p.c.susp)
				}
			case 8:
				find(p.c)
			default:
				p.w.ends[0].deliver()
			}
		}
		p.c.poll()
		require.NoError(t, sane(p.c))
		require.LessOrEqual(t, memory(p.c), limit, "%d bytes kept", p.c.spilled)
		if u := p.c.urg; u != nil {
			require.LessOrEqual(t, u.queue.Len(), urgentWindow)
			require.LessOrEqual(t, u.taken, u.arrived)
			require.LessOrEqual(t, u.sent-u.acked, uint64(urgentWindow))
		}
		registered := 0
		for _, r := range p.w.ends[0].regs {
			registered += len(r.b)
		}
		require.LessOrEqual(t, registered, 64*busyBuffer+len(e.offered)+len(e.into)+ownPiece+2*a.Buffered)
		if errors.Is(p.c.err, ErrProtocol) {
			require.True(t, isDone(p.c) && isBroken(p.c))
		}
		heard += int64(len(p.kinds()))
		require.LessOrEqual(t, heard, granted, "messages need credits")
	}
	p.w.faults = nil
	for _, it := range lent {
		p.c.returned(it)
	}
	p.finish("refused RDMA")
	if e.offered != nil {
		require.True(t, p.c.outboundOver(), "a Write does not hang")
	}
	require.False(t, p.c.in.busy, "a Read does not hang")
}

// allowed reports that a message does not break the protocol now. Scripts that leave others out come further.
func allowed(c *core, h header, payload []byte) bool {
	in, out := &c.in, &c.out
	n, counts := uint64(0), len(payload) == 8
	if len(payload) >= 8 {
		n = binary.LittleEndian.Uint64(payload)
	}
	if int(h.credits)+c.win.credits > 1000 {
		return false
	}
	switch h.kind {
	case kindData, kindFin:
		return c.reading != readEOF && !in.active
	case kindOffer:
		o, err := parseOffer(payload)
		return err == nil && c.reading != readEOF && !in.active && !c.wanted(letterDone) && (!o.read || c.reader != nil)
	case kindWrote:
		return in.active && !in.read && in.busy && !c.wanted(letterTarget) && counts && n <= uint64(len(in.dst))
	case kindDone:
		return out.active && !out.over && counts && (n == out.sent || n == uint64(len(out.p)) || out.read && n < uint64(len(out.p)))
	case kindTarget:
		return out.active && !out.over && !out.read && !out.targetSet && len(payload) == targetSize && n > 0 && n <= uint64(len(out.p))-out.sent
	case kindResize:
		return c.win.n < maxGrants && h.credits >= minReceives && uint32(h.arg) >= minBuffer && h.arg>>32 < 1000
	case kindClosed:
		return c.life >= lifeCloseSent
	case kindUrgent:
		u := c.urgent()
		return c.features&featureUrgent != 0 && len(payload) > 0 && len(payload) <= maxUrgent && c.reading != readEOF &&
			u.arrived-u.taken < urgentWindow && h.arg >= u.mark && h.arg <= maxMark
	case kindSuspend:
		return c.features&featureHandover != 0 && !in.active && c.peer == peerThere && (c.susp == nil || c.susp.over() || c.susp.role == active)
	case kindSuspended:
		if s := c.susp; s != nil && s.role == active && s.state >= suspSent && !s.over() && s.number == h.arg {
			_, err := parseTicket(payload)
			return len(payload) == 0 || err == nil && !in.active && s.ticket == nil
		}
		return h.arg > 0 && h.arg < c.suspends
	case kindTaken:
		return h.arg >= c.urgent().acked && h.arg <= c.urgent().sent
	}
	return h.kind > 0 && h.kind < kinds
}

// known is a bit of a message in a script: its argument is the number of the transfer under way.
const known = 1 << 7

// hostileParts are parts of scripts in which things go as they should, more or less.
func hostileParts() [][]byte {
	msg := func(h header, payload ...[]byte) []byte {
		var arg []byte
		op := byte(known)
		if h.arg != known {
			op, arg = 8<<3, binary.LittleEndian.AppendUint64(nil, h.arg)
		}
		b := append([]byte{op, byte(h.kind), h.flags, byte(h.credits)}, arg...)
		all := bytes.Join(payload, nil)
		return append(append(b, byte(len(all))), all...)
	}
	desc := func(h byte) provider.Descriptor { return provider.Descriptor{h} }
	const read, write, background, deliver = 4 | 8<<4, 5 | 8<<4, 6, 7
	parts := [][]byte{
		msg(header{kind: kindData, credits: 2}, []byte("hello")),
		msg(header{kind: kindData, flags: flagMore, credits: 1}, make([]byte, 200)),
		msg(header{kind: kindNop, flags: flagBlocked, credits: 5}),
		msg(header{kind: kindNop, flags: flagDrain}),
		msg(header{kind: kindCredit, flags: flagOpen, credits: 4}),
		msg(header{kind: kindPing, arg: 5}),
		msg(header{kind: kindOffer, arg: 1, credits: 1}, offer{total: 1 << 16, desc: desc(2), read: true}.bytes()),
		msg(header{kind: kindOffer, arg: 2, credits: 1}, offer{total: 50, desc: desc(1), read: true}.bytes(), []byte("first")),
		msg(header{kind: kindOffer, arg: 3, credits: 1}, offer{total: 1 << 20, desc: desc(1), read: true}.bytes()),
		msg(header{kind: kindOffer, arg: 4, credits: 1}, offer{total: 60000}.bytes()),
		msg(header{kind: kindOffer, arg: 5, credits: 1}, offer{total: 60}.bytes(), make([]byte, 150)),
		msg(header{kind: kindWrote, arg: known, credits: 1}, count(60)),
		msg(header{kind: kindWrote, arg: known, credits: 1}, count(0)),
		msg(header{kind: kindRevoke, arg: known, credits: 1}),
		msg(header{kind: kindDone, arg: known, credits: 1}, count(0)),
		msg(header{kind: kindDone, arg: known, credits: 1, flags: flagDirect}, count(1000)),
		msg(header{kind: kindTarget, arg: known, credits: 1}, target{length: 1000, desc: desc(2)}.bytes()),
		msg(header{kind: kindTarget, arg: known, credits: 1}, target{length: 30, desc: desc(9)}.bytes()),
		msg(header{kind: kindTarget, arg: known, credits: 1}, target{length: 20000, desc: desc(2)}.bytes()),
		msg(header{kind: kindUntarget, arg: known, credits: 1}),
		msg(header{kind: kindResize, credits: 16, arg: 8192 | 1<<32}),
		msg(header{kind: kindResize, credits: 8, arg: 256, flags: flagDrain}),
		{read, 1}, {read, 200}, {read | 1<<4, 250}, {background}, {deliver}, {deliver}, {deliver, deliver, deliver},
		{write, 1}, {write, 1}, {write, 200}, {write | 1<<4, 250}, {write, 0}, {write, 0},
		msg(header{kind: kindUrgent, arg: 10, credits: 1}, []byte("stop")),
		msg(header{kind: kindUrgent, arg: 1 << 40, credits: 1}, make([]byte, maxUrgent)),
		msg(header{kind: kindTaken, arg: 1, credits: 1}), msg(header{kind: kindTaken, arg: 20, credits: 1}),
		msg(header{kind: kindSuspend, arg: 1, credits: 1}), msg(header{kind: kindGoOn, arg: 1, credits: 1}), {7 | 8<<3}, {7 | 8<<3},
		{7 | 6<<3}, {7 | 6<<3}, {7 | 7<<3}, {7 | 7<<3}, msg(header{kind: kindSuspended, arg: 1, credits: 1}, fakeTicket.append(nil)),
		msg(header{kind: kindSuspended, arg: 1, credits: 1}), msg(header{kind: kindSuspended, arg: 2, credits: 1}, fakeTicket.append(nil)),
		{7 | 4<<3}, {7 | 4<<3}, {7 | 5<<3, 3}, {7 | 5<<3, maxUrgent - 1},
		{6 | 1<<3}, {6 | 2<<3}, {6 | 3<<3}, {6 | 6<<3}, {7 | 3<<3}, {7 | 3<<3},
	}
	return parts
}

// hostileEnds are parts that mostly end it.
func hostileEnds() [][]byte {
	var ends [][]byte
	for _, k := range []kind{kindFin, kindClose, kindClosed, kindAbort, kindUrgent, kinds, kindReady} {
		ends = append(ends, []byte{0, byte(k), 0, 1, 0})
	}
	return append(ends, []byte{6 | 4<<3}, []byte{6 | 5<<3}, []byte{6 | 7<<3, 0}, []byte{7 | 1<<3, 1}, []byte{7 | 2<<3, 1},
		append([]byte{3, 20}, make([]byte, 20)...))
}

// hostileScript puts parts together.
func hostileScript(r *rand.Rand) script {
	parts, ends := hostileParts(), hostileEnds()
	s := script{byte(r.IntN(modelKinds) | r.IntN(8)<<4), byte(r.IntN(16))}
	for range 1 + r.IntN(200) {
		s = append(s, parts[r.IntN(len(parts))]...)
		if r.IntN(100) == 0 {
			s = append(s, ends[r.IntN(len(ends))]...)
		}
		if r.IntN(100) == 0 {
			s[r.IntN(len(s))] = byte(r.Uint32())
		}
	}
	return s
}

func FuzzHostilePeer(f *testing.F) {
	for seed := range uint64(20) {
		f.Add([]byte(hostileScript(fakeRand(seed))))
	}
	f.Fuzz(func(t *testing.T, b []byte) { runHostile(t, b) })
}

func TestHostilePeer(t *testing.T) {
	for seed := range uint64(testSeeds(t, 500)) {
		t.Run("", func(t *testing.T) { runHostile(t, hostileScript(fakeRand(seed))) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// A message that breaks the protocol, after others that do not.
func TestProtocolViolations(t *testing.T) {
	type m struct {
		h header
		p []byte
	}
	d := provider.Descriptor{1}
	data := m{header{kind: kindData}, []byte("x")}
	fin := m{header{kind: kindFin}, nil}
	offered := m{header{kind: kindOffer, arg: 1}, offer{total: 50_000, read: true, desc: d}.bytes()}
	pushed := m{header{kind: kindOffer, arg: 1}, offer{total: 50_000}.bytes()}
	aim := func(id, n uint64) m { return m{header{kind: kindTarget, arg: id}, target{length: n, desc: d}.bytes()} }
	done := func(id, n uint64) m { return m{header{kind: kindDone, arg: id}, count(n)} }
	wrote := func(id, n uint64) m { return m{header{kind: kindWrote, arg: id}, count(n)} }
	resize := func(n uint16, size uint64) m { return m{header{kind: kindResize, credits: n, arg: size}, nil} }
	const none, reading, writing, read = 0, 1, 2, 3
	for _, c := range []struct {
		name  string
		doing int // what the core is doing, before the last message
		kind  int // of provider
		says  []m
	}{
		{"data after fin", none, 0, []m{fin, data}},
		{"data after close", none, 0, []m{{header{kind: kindClose}, nil}, data}},
		{"data in an offer", none, 0, []m{offered, data}},
		{"fin twice", none, 0, []m{fin, fin}},
		{"fin in an offer", none, 0, []m{offered, fin}},
		{"offer in an offer", none, 0, []m{offered, offered}},
		{"offer after fin", none, 0, []m{fin, offered}},
		{"offer of nothing", none, 0, []m{{header{kind: kindOffer}, offer{read: true}.bytes()}}},
		{"offer too long", none, 0, []m{{header{kind: kindOffer}, offer{total: 1<<56 + 1, read: true}.bytes()}}},
		{"offer cut short", none, 0, []m{{header{kind: kindOffer}, offered.p[:offerSize-1]}}},
		{"offer of mode 2", none, 0, []m{{header{kind: kindOffer}, append(append([]byte(nil), offered.p[:8]...), append([]byte{2}, offered.p[9:]...)...)}}},
		{"offer to read, without RDMA read", none, 1, []m{offered}},
		{"closed without close", none, 0, []m{{header{kind: kindClosed}, nil}}},
		{"urgent", none, 0, []m{{header{kind: kindUrgent}, []byte{1}}}},
		{"taken", none, 0, []m{{header{kind: kindTaken}, nil}}},
		{"done without an offer", none, 0, []m{done(0, 0)}},
		{"target without an offer", none, 0, []m{aim(0, 1)}},
		{"wrote without an offer", none, 0, []m{wrote(0, 0)}},
		{"wrote for an offer to read", reading, 0, []m{offered, wrote(1, 0)}},
		{"wrote before a target", none, 1, []m{pushed, wrote(1, 0)}},
		{"wrote too much", reading, 1, []m{pushed, wrote(1, 10_001)}},
		{"wrote all bits", reading, 1, []m{pushed, wrote(1, 1<<64-1)}},
		{"wrote for another offer", reading, 1, []m{pushed, wrote(2, 5)}},
		{"wrote, count short", reading, 1, []m{pushed, {header{kind: kindWrote, arg: 1}, count(1)[:7]}}},
		{"done for another offer", writing, 0, []m{done(2, 0)}},
		{"done too much", writing, 0, []m{done(1, 50_001)}},
		{"done all bits", writing, 0, []m{done(1, 1<<64-1)}},
		{"done twice", writing, 0, []m{done(1, 5), done(1, 5)}},
		{"done, count long", writing, 0, []m{{header{kind: kindDone, arg: 1}, append(count(1), 0)}}},
		{"done with what was not written", writing, 1, []m{done(1, 5)}},
		{"target for an offer to read", writing, 0, []m{aim(1, 1)}},
		{"target too long", writing, 1, []m{aim(1, 50_001)}},
		{"target for another offer", writing, 1, []m{aim(2, 1)}},
		{"target while one is in use", writing, 1, []m{aim(1, 100), aim(1, 100)}},
		{"target of nothing", writing, 1, []m{aim(1, 0)}},
		{"resize to few", none, 0, []m{resize(minReceives-1, 256)}},
		{"resize to small", none, 0, []m{resize(8, 255)}},
		{"resize too often", none, 0, []m{resize(8, 256), resize(8, 256), resize(8, 256), resize(8, 256)}},
		{"resize with too many", none, 0, []m{resize(8, 256|1<<49)}},
		{"credits without end", none, 0, []m{{header{kind: kindNop, credits: 65535}, nil}}},
		{"kind 0", none, 0, []m{{header{}, nil}}},
		{"unknown kind", none, 0, []m{{header{kind: kinds}, nil}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPuppet(t, modelAttrs(c.kind), puppetHello(), Config{})
			if c.doing == writing {
				_, begun := p.c.offer(make([]byte, 50_000))
				require.True(t, begun)
			}
			for i, m := range c.says {
				if i == len(c.says)-1 {
					require.NoError(t, p.c.err, "before the last message")
					if c.doing == reading {
						_, begun := p.c.pull(make([]byte, 10_000))
						require.True(t, begun)
					}
				}
				p.say(m.h, m.p)
			}
			assert.ErrorIs(t, p.c.err, ErrProtocol)
			assert.True(t, isDone(p.c))
			hs, _ := p.heard()
			require.NotEmpty(t, hs)
			last := hs[len(hs)-1]
			assert.Equal(t, kindAbort, last.kind)
			assert.EqualValues(t, abortProtocol, last.arg)
			_, err := p.c.write([]byte{1})
			assert.ErrorIs(t, err, ErrProtocol)
			_, err = p.c.write([]byte{1})
			assert.ErrorIs(t, err, ErrProtocol, "it stays what it is")
			p.finish()
		})
	}

	for name, b := range map[string][]byte{
		"no header":     make([]byte, headerSize-1),
		"empty":         {},
		"length":        encode(header{kind: kindData}, []byte("abc"))[:headerSize+2],
		"length beyond": append(encode(header{kind: kindData}, []byte("abc")), 1),
	} {
		p := newPuppet(t, fakeAttr(), puppetHello(), Config{})
		require.True(t, p.raw(b))
		p.c.poll()
		assert.ErrorIs(t, p.c.err, ErrProtocol, name)
		p.finish()
	}
}

// What looks odd but may happen, because messages cross.
func TestProtocolAllows(t *testing.T) {
	for name, h := range map[string]header{
		"revoke of an offer that is over":   {kind: kindRevoke, arg: 12345},
		"untarget of an offer that is over": {kind: kindUntarget, arg: 12345},
		"ready again":                       {kind: kindReady},
		"pong unasked":                      {kind: kindPong, arg: 1},
		"unknown flags":                     {kind: kindNop, flags: 0xe0},
		"an argument that means nothing":    {kind: kindCredit, arg: 1 << 63},
		"data of no bytes":                  {kind: kindData},
	} {
		p := newPuppet(t, fakeAttr(), puppetHello(), Config{})
		p.say(h)
		p.say(header{kind: kindData}, []byte("on"))
		require.NoError(t, p.c.err, name)
		b := make([]byte, 10)
		n, err := p.c.read(b)
		assert.NoError(t, err)
		assert.Equal(t, "on", string(b[:n]))
		p.finish()
	}
}

// The peer may still write to a receive buffer after the message has arrived. That changes data which nobody has
// read yet, and nothing else: not how much it is, nor what the core does.
func TestReceiveBuffersChange(t *testing.T) {
	for seed := range uint64(testSeeds(t, 50)) {
		r := fakeRand(seed)
		p := newPuppet(t, modelAttrs(int(seed)%2), puppetHello(), Config{})
		scribble := func() {
			for _, reg := range p.w.ends[0].regs {
				if len(reg.b)%idleReceives != 0 && len(reg.b)%busyReceives != 0 {
					continue
				}
				for range 300 {
					reg.b[r.IntN(len(reg.b))] = byte(r.Uint32())
				}
			}
		}
		sent, got, id := 0, 0, uint64(0)
		buf := make([]byte, 3000)
		for range 200 {
			switch r.IntN(4) {
			case 0, 1:
				if n := r.IntN(200); p.raw(encode(header{kind: kindData, credits: 1, flags: byte(r.IntN(4))}, make([]byte, n))) {
					sent += n
				}
			case 2:
				if id++; p.raw(encode(header{kind: kindOffer, credits: 1, arg: id}, offer{total: 1}.bytes(), make([]byte, 50))) {
					sent += 50
					p.c.poll()
					p.say(header{kind: kindRevoke, credits: 1, arg: id})
				}
			case 3:
				p.c.spill()
			}
			p.c.poll()
			scribble()
			require.NoError(t, p.c.err)
			require.Equal(t, sent, got+p.c.queued)
			n, err := p.c.read(buf[:r.IntN(len(buf))])
			require.NoError(t, err)
			got += n
			require.NoError(t, sane(p.c))
			p.heard()
		}
		p.finish()
	}
}
