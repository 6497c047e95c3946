package session

import (
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/provider"
)

// fakeProvider stands for one where nobody calls it.
type fakeProvider struct{ provider.Provider }

var fakeTicket = ticket{token: token{1, 2, 3}, addr: netip.MustParseAddrPort("10.0.0.1:77")}

// find does what Conn does for a core that is to wait for a new end.
func find(c *core) {
	if s := c.susp; s != nil && s.role == passive && s.state == suspOpening {
		c.opened(&fakeTicket)
		c.pump()
	}
}

// The model of model_test.go with ends that are handed over at any moment, or think better of it.
func TestModelHandover(t *testing.T) {
	for kinds := range modelKinds * modelKinds {
		for seed := range uint64(testSeeds(t, 4)) {
			runModelHandover(t, modelAttrs(kinds/modelKinds), modelAttrs(kinds%modelKinds), seed, nil)
		}
	}
}

func runModelHandover(t testing.TB, a, b provider.Attributes, seed uint64, faults func(step string) provider.Status) {
	w := newFakeWire(a, b)
	cfg := Config{ReadBuffer: 200 << 10, Provider: fakeProvider{}}
	ends := newModelEnds(t, w, seed, cfg)
	w.faults = faults
	r := fakeRand(seed + 3000)
	moved := 2 * max(a.Buffered, b.Buffered, busyReceives*busyBuffer)
	step := func() {
		ends[r.IntN(2)].step(w)
		for _, e := range ends {
			find(&e.core)
			require.NoError(t, sane(&e.core, moved))
			require.NoError(t, e.core.err, "seed %d: broken %v", seed, w.broken)
		}
		if ends[0].line.state != lineQuiet && ends[1].line.state != lineQuiet {
			require.NoError(t, audit(w, ends, moved), "seed %d", seed)
		}
	}
	for range 6 {
		for range r.IntN(400) {
			step()
		}
		i := r.IntN(2)
		e := ends[i]
		e.lock()
		err := e.suspend()
		for n := 0; err == ErrHandoverBusy; n++ { // the other end has thought better of it, which has not come here yet
			require.Less(t, n, 100000)
			step()
			e.lock()
			err = e.suspend()
		}
		require.NoError(t, err)
		if r.IntN(3) == 0 { // the other one, too
			for range r.IntN(10) {
				step()
			}
			o := ends[1-i]
			o.lock()
			if o.suspend() == nil {
				leaves := func(e *modelEnd) bool { return e.susp != nil && e.susp.role == active && !e.susp.over() }
				for n := 0; leaves(ends[0]) && leaves(ends[1]); n++ {
					require.Less(t, n, 100000, "neither gives way")
					step()
				}
				if i = 0; leaves(ends[1]) {
					i = 1
				}
				e = ends[i]
				require.True(t, leaves(e), "one does not")
			}
		}
		patience := 100000
		calledOff := r.IntN(3) == 0
		if calledOff {
			patience = r.IntN(100)
		}
		s := e.susp
		for n := 0; n < patience && (s.ticket == nil && s.err == nil || calledOff); n++ {
			step()
		}
		if calledOff {
			e.lock()
			e.stay(s)
			continue
		}
		if s.err != nil {
			continue // it has given way to one of the other's, which had been on its way
		}
		require.NotNil(t, s.ticket, "seed %d: the peer does not stop: %v %v", seed, describe(ends), wireState(w))
		w = handOver(t, w, &ends, i, cfg)
	}
	endModel(t, w, ends, seed, moved)
}

// handOver moves end i, which has the other's ticket, to another wire, which it returns.
func handOver(t testing.TB, w *fakeWire, ends *[2]*modelEnd, i int, cfg Config) *fakeWire {
	e, o := ends[i], ends[1-i]
	// What waits at the end that leaves ends: what it has come to still counts.
	if e.offered != nil {
		require.True(t, e.outboundOver())
		e.stepOffer()
	}
	e.writing = nil
	if e.into != nil {
		require.True(t, e.in.over)
		e.stepRead(1)
	}
	var s State
	s.Local, s.Remote = netip.MustParseAddrPort("10.0.0.2:1"), netip.MustParseAddrPort("10.0.0.1:1")
	s.Version, s.Token, s.Peer = stateVersion, e.susp.ticket.token, e.susp.ticket.addr
	e.core.snapshot(&s)
	st, err := ParseState(s.Encode())
	require.NoError(t, err)
	w.ends[i].Close()
	e.lineClosed()
	e.core.finish()
	require.Zero(t, w.ends[i].leaks())
	for w.ends[i].deliver() {
	}
	o.poll()
	require.NoError(t, o.core.err)
	require.False(t, isDone(&o.core))
	w.ends[1-i].Close()
	o.poll()
	kept, lent := o.unbind()
	require.Zero(t, lent)
	require.False(t, kept[0].live() || kept[1].live())
	require.Zero(t, w.ends[1-i].leaks())
	require.Empty(t, w.broken)

	next := newFakeWire(w.ends[0].attr, w.ends[1].attr)
	defer func() { next.faults = w.faults }()
	cfg.ReadBuffer = int(st.ReadBuffer)
	cfg.CacheBytes = -1
	var n [2]negotiation
	var fresh [2]*core
	for j := range fresh {
		fresh[j] = &newConn(next.ends[j], cfg).core
		n[j] = negotiation{core: fresh[j], side: Listener, opener: func(got token) bool { return got == fakeTicket.token }}
	}
	n[i] = negotiation{core: fresh[i], side: Dialer, token: &st.Token}
	require.NoError(t, n[1-i].begin())
	require.NoError(t, n[i].begin())
	negotiateModel(t, next, &n)
	fresh[i].load(st)
	e.core = *fresh[i]
	o.rebound(fresh[1-i])
	e.pump()
	o.pump()
	return next
}

// What breaks the rules of a hand-over.
func TestHandoverViolations(t *testing.T) {
	type m struct {
		h header
		p []byte
	}
	msg := func(k kind, n uint64, p ...byte) m { return m{header{kind: k, arg: n}, p} }
	read := m{header{kind: kindOffer, arg: 1}, offer{total: 50_000, read: true, desc: provider.Descriptor{1}}.bytes()}
	for name, c := range map[string]struct {
		leaving bool // the core is on its way out, with number 1
		says    []m
	}{
		"suspend in an offer":      {false, []m{read, msg(kindSuspend, 1)}},
		"offer in a hand-over":     {false, []m{msg(kindSuspend, 1), read}},
		"suspend after close":      {false, []m{msg(kindClose, 0), msg(kindSuspend, 1)}},
		"suspend twice":            {false, []m{msg(kindSuspend, 1), msg(kindSuspend, 2)}},
		"suspended unasked":        {false, []m{msg(kindSuspended, 1)}},
		"suspended, number 0":      {false, []m{msg(kindSuspended, 0)}},
		"suspended, next number":   {true, []m{msg(kindSuspended, 2, fakeTicket.append(nil)...)}},
		"suspended, ticket cut":    {true, []m{msg(kindSuspended, 1, fakeTicket.append(nil)[:ticketSize-1]...)}},
		"suspended, no address":    {true, []m{msg(kindSuspended, 1, make([]byte, ticketSize)...)}},
		"suspended in an offer":    {true, []m{read, msg(kindSuspended, 1, fakeTicket.append(nil)...)}},
		"suspended twice":          {true, []m{msg(kindSuspended, 1, fakeTicket.append(nil)...), msg(kindSuspended, 1, fakeTicket.append(nil)...)}},
		"data after fin, moreover": {true, []m{msg(kindFin, 0), msg(kindData, 0, 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			h := puppetHello()
			h.features = features
			p := newPuppet(t, fakeAttr(), h, Config{Provider: fakeProvider{}})
			if c.leaving {
				require.NoError(t, p.c.suspend())
				p.c.pump()
			}
			for i, m := range c.says {
				require.NoError(t, p.c.err, "before message %d", i)
				m.h.credits = 1
				p.say(m.h, m.p)
			}
			assert.ErrorIs(t, p.c.err, ErrProtocol)
			assert.True(t, isDone(p.c))
			p.finish()
		})
	}
	// Without agreement all of it is wrong.
	for _, k := range []kind{kindSuspend, kindSuspended} {
		p := newPuppet(t, fakeAttr(), puppetHello(), Config{Provider: fakeProvider{}})
		assert.Equal(t, ErrNoHandover, p.c.suspend())
		p.say(header{kind: k, arg: 1})
		assert.ErrorIs(t, p.c.err, ErrProtocol, k)
		p.finish()
	}
}

// slowListener is a provider that takes its time to listen.
type slowListener struct {
	provider.Provider
	listens atomic.Int32
	release chan struct{}
}

func (p *slowListener) Listen(netip.AddrPort, int) (provider.Listener, error) {
	p.listens.Add(1)
	<-p.release
	return nil, provider.StatusNoMemory
}

// A peer that wants to be handed over, and does not, time and again, has one address opened at a time.
func TestHandoverFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowListener{release: make(chan struct{})}
		h := puppetHello()
		h.features = features
		p := newPuppet(t, fakeAttr(), h, Config{Provider: slow})
		say := func(k kind, n uint64) {
			p.conn.mu.Lock()
			p.say(header{kind: k, arg: n, credits: 1})
			p.conn.unlock()
			synctest.Wait()
		}
		for n := range uint64(20) {
			say(kindSuspend, n+1)
			say(kindGoOn, n+1)
		}
		say(kindSuspend, 21)
		require.NoError(t, p.c.err)
		assert.EqualValues(t, 1, slow.listens.Load())
		close(slow.release)
		synctest.Wait()
		assert.EqualValues(t, 2, slow.listens.Load(), "the one that still counts comes next")
		assert.True(t, p.c.susp.over())
		assert.NoError(t, p.c.err)
		p.finish()
	})
}

// A peer that begins to be handed over, which is not possible, and then says nothing any more is not waited for without end.
func TestHandoverStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowListener{release: make(chan struct{})}
		close(slow.release)
		h := puppetHello()
		h.features = features
		p := newPuppet(t, fakeAttr(), h, Config{Provider: slow, ResumeTimeout: time.Minute})
		c := p.conn
		require.NoError(t, c.SetKeepAlive(time.Second, time.Second, 2))
		c.mu.Lock()
		_, begun := c.core.offer(make([]byte, 50_000))
		require.True(t, begun)
		p.say(header{kind: kindSuspend, arg: 1, credits: 1})
		c.unlock()
		time.Sleep(2 * time.Minute)
		c.mu.Lock()
		assert.Equal(t, syscall.ECONNRESET, c.core.err)
		assert.True(t, c.epClosed)
		c.unlock()
		c.Close()
		requireRules(t, p.w)
	})
}

// An abort that is found when the new end is there already still counts.
func TestAdoptAborted(t *testing.T) {
	for _, last := range []kind{kindAbort, kindData, kindCredit} {
		h := puppetHello()
		h.features = features
		old, next := newPuppet(t, fakeAttr(), h, Config{Provider: fakeProvider{}}), newPuppet(t, fakeAttr(), h, Config{})
		c, fresh := old.conn, next.conn
		c.mu.Lock()
		old.say(header{kind: kindSuspend, arg: 1, credits: 1})
		find(old.c)
		c.move.stay = &stay{s: old.c.susp}
		c.unlock()
		require.True(t, old.c.line.state == lineQuiet)
		require.True(t, old.raw(encode(header{kind: last, arg: abortReset, length: 1}, []byte{1})))
		fresh.mu.Lock()
		r := redirectTo(fresh.wake)
		c.adopt(fresh, r, c.move.stay)
		if last == kindAbort {
			assert.Equal(t, syscall.ECONNRESET, c.core.err)
			assert.True(t, c.epClosed && fresh.epClosed)
		} else {
			assert.NoError(t, c.core.err)
			assert.False(t, c.epClosed)
		}
		c.SetLinger(0)
		c.Close()
	}
}

// A Conn whose endpoint is another's now leaves what arrives there alone.
func TestUnlockAfterAdoption(t *testing.T) {
	p := newPuppet(t, fakeAttr(), puppetHello(), Config{})
	c := p.conn
	require.True(t, p.raw(encode(header{kind: kindPing})))
	c.mu.Lock()
	c.epClosed = true
	c.missed.Store(true)
	c.unlock()
	assert.Len(t, p.w.ends[0].cq, 1)
	p.finish()
}

// What may cross does no harm, and after it the connection is as it was.
func TestHandoverCrossings(t *testing.T) {
	start := func() *puppet {
		h := puppetHello()
		h.features = features
		return newPuppet(t, fakeAttr(), h, Config{Provider: fakeProvider{}})
	}
	fine := func(p *puppet) {
		t.Helper()
		require.NoError(t, p.c.err)
		p.heard()
		n, err := p.c.write([]byte("on"))
		require.NoError(t, err)
		require.Equal(t, 2, n)
		require.Equal(t, []kind{kindData}, p.kinds())
		p.finish()
	}
	yes := fakeTicket.append(nil)

	p := start() // called off, and answered
	require.NoError(t, p.c.suspend())
	p.c.pump()
	p.c.stay(p.c.susp)
	require.Equal(t, []kind{kindSuspend, kindGoOn}, p.kinds())
	p.say(header{kind: kindSuspended, arg: 1, credits: 2}, yes)
	fine(p)

	p = start() // refused
	require.NoError(t, p.c.suspend())
	p.c.pump()
	n, err := p.c.write([]byte("paused"))
	require.NoError(t, err)
	require.Zero(t, n)
	p.say(header{kind: kindSuspended, arg: 1, credits: 2})
	require.Equal(t, ErrHandoverBusy, p.c.susp.err)
	p.c.stay(p.c.susp)
	p.heard()
	fine(p)

	p = start() // the peer thinks better of it, before and after the answer; nothing of it moves this end
	p.say(header{kind: kindSuspend, arg: 1, credits: 1})
	p.say(header{kind: kindGoOn, arg: 1, credits: 1})
	p.say(header{kind: kindGoOn, arg: 1, credits: 1})
	p.say(header{kind: kindSuspend, arg: 2, credits: 1})
	find(p.c)
	hs, payloads := p.heard()
	require.Equal(t, header{kind: kindSuspended, length: ticketSize, arg: 2, credits: hs[len(hs)-1].credits}, hs[len(hs)-1])
	require.Equal(t, yes, payloads[len(payloads)-1])
	n, err = p.c.write([]byte("muted"))
	require.NoError(t, err)
	require.Zero(t, n)
	p.c.ping()
	p.say(header{kind: kindPing, credits: 1})
	require.Empty(t, p.kinds(), "nothing after that")
	p.say(header{kind: kindGoOn, arg: 1, credits: 1})
	require.True(t, p.c.line.state == lineQuiet, "that was another one")
	p.say(header{kind: kindGoOn, arg: 2, credits: 1})
	fine(p)

	p = start() // this end has closed
	p.c.close()
	p.c.pump()
	p.say(header{kind: kindSuspend, arg: 1, credits: 1})
	require.Nil(t, p.c.susp)
	p.say(header{kind: kindClosed, credits: 1})
	require.True(t, isDone(p.c))
	p.finish()

	p = start() // likewise where nothing was said yet
	_, begun := p.c.offer(make([]byte, 50_000))
	require.True(t, begun)
	require.NoError(t, p.c.suspend())
	leaving := p.c.susp
	require.Equal(t, suspDue, leaving.state)
	p.say(header{kind: kindSuspend, arg: 1, credits: 1})
	require.Equal(t, ErrHandoverBusy, leaving.err)
	require.Equal(t, passive, p.c.susp.role)
	p.say(header{kind: kindGoOn, arg: 1, credits: 1})
	p.say(header{kind: kindDone, arg: 1, credits: 1}, count(0))
	p.c.takeOutbound()
	fine(p)

	p = start() // both: the listening side goes, as the peer will know
	require.NoError(t, p.c.suspend())
	p.c.pump()
	p.say(header{kind: kindSuspend, arg: 1, credits: 1})
	require.Equal(t, active, p.c.susp.role)
	p.say(header{kind: kindSuspended, arg: 1, credits: 1}, yes)
	require.Equal(t, fakeTicket, *p.c.susp.ticket)
	p.finish()

	p = start() // the connection ends while the peer is away: not before the Conn says so
	p.say(header{kind: kindSuspend, arg: 1, credits: 1})
	find(p.c)
	require.True(t, p.c.line.state == lineQuiet)
	p.ep.Close()
	p.ep.deliver()
	p.c.poll()
	require.False(t, isDone(p.c) || p.c.readable() || p.c.writable())
	require.NoError(t, p.c.err)
	p.finish()
}

func FuzzTicket(f *testing.F) {
	f.Add(fakeTicket.append(nil))
	f.Add(ticket{addr: netip.MustParseAddrPort("[fe80::1]:65535")}.append([]byte(nil)))
	f.Add(make([]byte, ticketSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		tk, err := parseTicket(b)
		if err != nil {
			require.ErrorIs(t, err, ErrProtocol)
			return
		}
		again, err := parseTicket(tk.append(nil))
		require.NoError(t, err)
		require.Equal(t, tk, again)
	})
}

// stateSeed is a State with something in every field.
func stateSeed() State {
	return State{Version: stateVersion, Token: fakeTicket.token, Peer: fakeTicket.addr,
		Local: netip.MustParseAddrPort("10.0.0.2:1"), Remote: netip.MustParseAddrPort("[fe80::1%eth0]:2"),
		Dialer: true, Writing: writeEnding, Linger: -1, ReadBuffer: 1 << 20, Suspends: 3, In: 100, Out: 200,
		Urgent: urgentState{Arrived: 5, Taken: 3, Mark: 90, Sent: 4, Acked: 2,
			Queue: []urgentItem{{[]byte("a"), 80}, {[]byte("b"), 90}}},
		Unread: []byte("unread")}
}

func TestState(t *testing.T) {
	s := stateSeed()
	b := s.Encode()
	got, err := ParseState(b)
	require.NoError(t, err)
	assert.Equal(t, &s, got)
	assert.Equal(t, fakeTicket.addr, got.Addr())
	for n := range b {
		_, err := ParseState(b[:n])
		require.ErrorIs(t, err, ErrState, "%d bytes", n)
	}
	_, err = ParseState(append(b, 0))
	assert.ErrorIs(t, err, ErrState)
	for name, spoil := range map[string]func(*State){
		"no address":        func(s *State) { s.Peer = netip.AddrPort{} },
		"no buffer":         func(s *State) { s.ReadBuffer = 0 },
		"unread never came": func(s *State) { s.In = 2 },
		"too far":           func(s *State) { s.Out = maxMark + 1 },
		"taken not arrived": func(s *State) { s.Urgent.Taken = 6 },
		"too many urgent":   func(s *State) { s.Urgent.Arrived = 50 },
		"acked not sent":    func(s *State) { s.Urgent.Acked = 5 },
		"too many to come":  func(s *State) { s.Urgent.Sent = 60 },
		"urgent of nothing": func(s *State) { s.Urgent.Queue[0].Data = nil },
		"urgent too long":   func(s *State) { s.Urgent.Queue[0].Data = make([]byte, maxUrgent+1) },
		"mark to come":      func(s *State) { s.Urgent.Queue[0].Mark = 91 },
		"queue too long":    func(s *State) { s.Urgent.Queue = make([]urgentItem, urgentWindow+1) },
		"too many in queue": func(s *State) { s.Urgent.Queue = append(s.Urgent.Queue, s.Urgent.Queue[1]) },
	} {
		s := stateSeed()
		spoil(&s)
		_, err := ParseState(s.Encode())
		assert.ErrorIs(t, err, ErrState, name)
	}
}

func FuzzState(f *testing.F) {
	s := stateSeed()
	b := s.Encode()
	f.Add(b)
	f.Add(b[:len(b)-1])
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseState(b)
		if err != nil {
			require.ErrorIs(t, err, ErrState)
			return
		}
		again, err := ParseState(s.Encode())
		require.NoError(t, err)
		require.Equal(t, s, again)
		// A core can go on with it, whatever it is.
		p := startPuppet(t, fakeAttr(), Config{ReadBuffer: int(s.ReadBuffer)})
		n := negotiation{core: p.c, side: Listener}
		require.NoError(t, n.begin())
		h := puppetHello()
		h.kind, h.minVersion, h.maxVersion, h.features = helloOffer, version, version, features
		p.raw(h.append(nil))
		p.step(&n)
		p.raw(encode(header{kind: kindReady}))
		p.step(&n)
		p.c.load(s)
		p.c.pump()
		if !p.c.writeOver() {
			p.c.write([]byte("more"))
		}
		got := 0
		buf := make([]byte, 1000)
		for range 1 + len(s.Unread) {
			n, err := p.c.read(buf[:1+rand.IntN(len(buf))])
			if got += n; n == 0 || err != nil {
				break
			}
		}
		require.Equal(t, len(s.Unread), got)
		for range urgentWindow {
			p.c.takeUrgent()
		}
		require.NoError(t, p.c.err)
		p.finish()
	})
}
