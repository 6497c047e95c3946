//go:build linux

package shm

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"sansock/provider"
	"sansock/session"
)

// hostile is a peer that speaks the protocol with its own hands: it shares the code that makes a link, and nothing
// of what makes one behave.
type hostile struct {
	t testing.TB
	n *Node
	l *link
}

// befriend makes a hostile peer's link to the process that listens at a.
func befriend(t testing.TB, name string, a netip.AddrPort) *hostile {
	h := &hostile{t: t, n: Open(Config{Space: name})}
	l, err := h.n.linkTo(context.Background(), a)
	require.NoError(t, err)
	h.l = l
	t.Cleanup(func() {
		l.abort()
		<-l.done
		h.n.Close()
	})
	return h
}

// connect makes a connection. Its endpoint is used for what it knows of the shared memory.
func (h *hostile) connect(a netip.AddrPort) *endpoint {
	e, err := h.n.Dial(context.Background(), netip.AddrPortFrom(a.Addr(), 0), a)
	require.NoError(h.t, err)
	return e.(*endpoint)
}

// victim is a process's worth of honest service, with a witness: a connection from an honest peer, which has to be
// served all the time.
type victim struct {
	*san
	l       provider.Listener
	witness *session.Conn
	served  atomic.Int64
}

func newVictim(t testing.TB) *victim {
	v := &victim{san: newSAN(Config{Space: space(t)})}
	var err error
	v.l, err = v.Listen(loopback, 64)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		serveWith(func(c net.Conn) { echo(c); v.served.Add(1) })(v.san, v.l)
	}()
	other := newSAN(Config{Space: space(t)})
	p := process{addr: v.l.Addr()}
	v.witness = p.dial(t, other)
	t.Cleanup(func() {
		v.alive(t)
		v.witness.Close()
		other.Close()
		v.Close()
		<-done
	})
	return v
}

// alive proves that the victim serves its honest peer.
func (v *victim) alive(t testing.TB) {
	require.NoError(t, v.witness.SetDeadline(time.Now().Add(20*time.Second)))
	want := []byte(fmt.Sprint("are you there? ", rand.Uint64()))
	_, err := v.witness.Write(want)
	require.NoError(t, err)
	got := make([]byte, len(want))
	_, err = io.ReadFull(v.witness, got)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// target is an honest end whose peer is hostile.
func target(t testing.TB) (v *victim, e *end, bad *endpoint, h *hostile) {
	v = newVictim(t)
	l, err := v.Listen(loopback, 1)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	h = befriend(t, space(t), l.Addr())
	got := make(chan provider.Endpoint)
	go func() {
		ep, err := accept(l)
		if err != nil {
			ep = nil
		}
		got <- ep
	}()
	bad = h.connect(l.Addr())
	ep := <-got
	require.NotNil(t, ep)
	t.Cleanup(func() { ep.Close() })
	return v, newEnd(t, ep), bad, h
}

// ends waits for the end of e, and reports the completions before.
func (x *end) ends() (all []provider.Completion) {
	for {
		c := x.next()
		if c.Op == provider.OpDisconnect {
			return all
		}
		all = append(all, c)
	}
}

// raw gives the peer an event without regard for anything.
func (e *endpoint) raw(k kind, arg uint8, n int) { e.rawFlag(k, arg, n, 0) }

func (e *endpoint) rawFlag(k kind, arg uint8, n int, flag uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	published()
	e.out.events[e.out.given%slots].Store(packEvent(k, arg, n, solicited|flag, e.out.given))
	e.out.given++
	e.l.post(e.id)
}

func TestNonsenseEvents(t *testing.T) {
	for name, bad := range map[string]func(*endpoint){
		"a message without a receive":   func(e *endpoint) { e.raw(evMessage, 0, 1); e.raw(evMessage, 0, 1); e.raw(evMessage, 0, 1) },
		"a message beyond the receive":  func(e *endpoint) { e.raw(evMessage, 0, 65) },
		"a length beyond everything":    func(e *endpoint) { e.raw(evMessage, 0, -1) },
		"a first message that is long":  func(e *endpoint) { e.raw(evHeld, 0, provider.MaxFirstMessage+1) },
		"a first message that is third": func(e *endpoint) { e.raw(evMessage, 0, 1); e.raw(evMessage, 0, 1); e.raw(evHeld, 0, 1) },
		"an unknown event":              func(e *endpoint) { e.raw(99, 0, 0) },
		"no kind of event":              func(e *endpoint) { e.raw(0, 0, 0) },
		"a request out of the table":    func(e *endpoint) { e.raw(evRequest, maxRDMAs, 0) },
		"an empty request":              func(e *endpoint) { e.raw(evRequest, 0, 0) },
		"an answer to nothing":          func(e *endpoint) { e.raw(evAnswer, 0, 0) },
		"an answer out of the table":    func(e *endpoint) { e.raw(evAnswer, 255, 0) },
		"a request of absurd length": func(e *endpoint) {
			e.out.table[entryLength].Store(1 << 62)
			e.out.table[entryOp].Store(uint64(provider.OpRead))
			e.raw(evRequest, 0, 0)
		},
		"a request with a place nowhere": func(e *endpoint) {
			e.out.table[entryLength].Store(8)
			e.out.table[entryStage].Store(uint64(place(77, 64)))
			e.out.table[entryOp].Store(uint64(provider.OpWrite))
			e.raw(evRequest, 0, 0)
		},
		"a request with a place out of the segment": func(e *endpoint) {
			e.out.table[entryLength].Store(8)
			e.out.table[entryStage].Store(uint64(place(0, firstSegment-4)))
			e.out.table[entryOp].Store(uint64(provider.OpWrite))
			e.raw(evRequest, 0, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			v, e, peer, _ := target(t)
			e.receives(2, 64)
			bad(peer)
			e.ends()
			v.alive(t)
		})
	}
}

// TestNonsenseReceives posts receives that are not where memory is.
func TestNonsenseReceives(t *testing.T) {
	for _, d := range []uint64{
		packDesc(place(9, 0), 64, 0),
		packDesc(place(0, firstSegment-8), 64, 0),
		packDesc(place(maxSegs-1, maxSegment-1), 1<<sizeBits-1, 0),
	} {
		v, e, peer, _ := target(t)
		peer.in.descs[0].Store(d)
		published()
		require.NoError(t, e.PostSend(provider.Send{Context: 7, Inline: [2][]byte{make([]byte, 64)}}))
		require.Equal(t, []provider.Completion{{Context: 7, Op: provider.OpSend, Status: provider.StatusLink}}, e.ends())
		v.alive(t)
	}
}

// TestReplayedKey uses the key of another connection of the same two processes.
func TestReplayedKey(t *testing.T) {
	v, e, peer, h := target(t)
	l, err := v.Listen(loopback, 1)
	require.NoError(t, err)
	defer l.Close()
	got := make(chan provider.Endpoint)
	go func() {
		ep, _ := accept(l)
		got <- ep
	}()
	peer2 := h.connect(l.Addr())
	other := <-got
	defer other.Close()
	secret := []byte("a secret of the other connection")
	r, err := other.Expose(secret, provider.RightRead|provider.RightWrite)
	require.NoError(t, err)
	own, err := e.Expose(make([]byte, len(secret)), provider.RightRead|provider.RightWrite)
	require.NoError(t, err)
	_ = own
	into := make([]byte, len(secret))
	require.NoError(t, peer.PostRead(provider.RDMA{Local: provider.Segment{Bytes: into}, Remote: r.Descriptor}))
	e.ends()
	require.Equal(t, make([]byte, len(secret)), into)
	// Where the key belongs it works.
	x := newEnd(t, peer2)
	require.NoError(t, peer2.PostRead(provider.RDMA{Local: provider.Segment{Bytes: into}, Remote: r.Descriptor}))
	require.Equal(t, provider.Completion{Op: provider.OpRead}, x.next())
	require.Equal(t, secret, into)
}

// TestScribble writes at random over all shared memory while it is used.
func TestScribble(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 8
	}
	v := newVictim(t)
	for round := range rounds {
		h := befriend(t, space(t), v.l.Addr())
		p := process{addr: v.l.Addr()}
		s := &san{Node: h.n}
		c := p.dial(t, s)
		stop := make(chan struct{})
		done := make(chan struct{})
		h.n.mu.Lock()
		var l *link
		for l = range h.n.links {
		}
		h.n.mu.Unlock()
		theirs := words((*l.peerSegs.Load())[0])
		l.arena.mu.Lock()
		ours := words(l.arena.segs[0])
		l.arena.mu.Unlock()
		go func() { // our own half, which the victim reads, and the victim's, which it has given us
			defer close(done)
			rnd := rand.New(rand.NewPCG(1, uint64(round)))
			for {
				select {
				case <-stop:
					return
				default:
				}
				m := theirs
				if rnd.IntN(2) == 0 {
					m = ours
				}
				w := &m[hdrPending+pendingLen+rnd.IntN(1000)]
				switch rnd.IntN(4) {
				case 0:
					w.Store(rnd.Uint64())
				case 1:
					w.Store(w.Load() ^ 1<<rnd.IntN(64))
				case 2:
					w.Add(1)
				default:
					l.peerHdr.pending[rnd.IntN(8)].Store(rnd.Uint64())
					l.peerHdr.summary[0].Store(rnd.Uint64())
					ringBell(l.peerBell)
				}
			}
		}()
		c.SetDeadline(time.Now().Add(30 * time.Millisecond))
		buf := make([]byte, 3000)
		for range 200 {
			if _, err := c.Write(buf); err != nil {
				break
			}
			if _, err := c.Read(buf); err != nil {
				break
			}
		}
		v.alive(t)
		close(stop)
		<-done
		l.abort()
		<-l.done
	}
}

// TestNonsensePackets sends what no peer sends. Each costs the link, and nothing else.
func TestNonsensePackets(t *testing.T) {
	request := control{kind: ctlRequest, local: netip.MustParseAddrPort("127.0.0.1:5"), remote: netip.MustParseAddrPort("127.0.0.1:6")}
	far := request
	far.inbox = place(3, 64)
	for name, b := range map[string][]byte{
		"empty":             {},
		"short":             {1},
		"random":            []byte("GET / HTTP/1.1\r\n\r\n"),
		"too long":          make([]byte, maxControl+1),
		"refused":           (&control{kind: ctlRefused}).append(nil),
		"segment without":   (&control{kind: ctlSegment, seg: 1, size: 4096}).append(nil),
		"absurd connection": (&control{kind: ctlFin, conn: maxConns}).append(nil),
		"inbox nowhere":     far.append(nil),
		"unknown":           (&control{kind: 99}).append(nil),
	} {
		t.Run(name, func(t *testing.T) {
			v, e, _, h := target(t)
			require.NoError(t, unix.Send(h.l.fd, b, unix.MSG_NOSIGNAL))
			e.ends()
			v.alive(t)
		})
	}
}

// TestBadMemory offers memory that is not what it has to be.
func TestBadMemory(t *testing.T) {
	memfd := func(size, seal int) int {
		fd, err := unix.MemfdCreate("bad", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		require.NoError(t, err)
		require.NoError(t, unix.Ftruncate(fd, int64(size)))
		if seal != 0 {
			_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seal)
			require.NoError(t, err)
		}
		return fd
	}
	file, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer file.Close()
	for name, fd := range map[string]int{
		"not sealed":       memfd(1<<20, 0),
		"may shrink":       memfd(1<<20, unix.F_SEAL_GROW|unix.F_SEAL_SEAL),
		"not there":        memfd(1<<20, seals), // its pages are holes
		"of another size":  memfd(1<<19, seals),
		"of a file system": int(file.Fd()),
	} {
		t.Run(name, func(t *testing.T) {
			v, e, _, h := target(t)
			require.NoError(t, h.l.sendSegment(1, 1<<20, fd))
			e.ends()
			v.alive(t)
		})
	}
}

// TestHalfConnections opens many handshakes and does not finish any.
func TestHalfConnections(t *testing.T) {
	v := newVictim(t)
	name := v.name(v.l.Addr())
	before := openFiles(t)
	var conns []net.Conn
	for range 1000 {
		c, err := net.Dial("unixpacket", name)
		if err == nil {
			conns = append(conns, c)
		}
	}
	v.alive(t)
	// A new one gets in between.
	other := openSAN(t, Config{Space: space(t)})
	p := process{addr: v.l.Addr()}
	c := p.dial(t, other)
	_, err := c.Write([]byte("hello"))
	require.NoError(t, err)
	require.Less(t, openFiles(t), before+len(conns)+2*maxHalves+20, "the victim keeps what it has pushed out")
	for _, c := range conns {
		c.Close()
	}
}

func openFiles(t testing.TB) int {
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(fds)
}

// TestFlood rings the doorbell all the time.
func TestFlood(t *testing.T) {
	v, e, _, h := target(t)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				ringBell(h.l.peerBell)
			}
		}
	}()
	for range 5 {
		v.alive(t)
	}
	close(stop)
	<-done
	e.Close()
}

// A peer that marks a connection again and again, without an event, is found out, rung for or not: else the dispatcher, which looks
// for the next mark before it sleeps, would never sleep.
func TestFalseMarks(t *testing.T) {
	v, e, bad, h := target(t)
	there := e.Endpoint.(*endpoint).l
	there.arena.mu.Lock()
	there.arena.live++ // its memory stays mapped, as in the peer's process
	there.arena.mu.Unlock()
	bell, err := unix.Dup(h.l.peerBell)
	require.NoError(t, err)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				if there.hdr.post(bad.id) {
					ringBell(bell)
				}
				runtime.Gosched() // or, with one processor, each turn of the others would take 10 ms to come
			}
		}
	}()
	e.ends()
	v.alive(t)
	<-there.done // whatever is marked then
	close(stop)
	<-done
	unix.Close(bell)
	there.arena.mu.Lock()
	there.arena.live--
	there.arena.unmap()
	there.arena.mu.Unlock()
}

// A peer that asks and asks, and takes no answer, does not have us keep more and more of these.
func TestAnswersNotTaken(t *testing.T) {
	v, e, _, _ := target(t)
	l := e.Endpoint.(*endpoint).l
	l.tx.Lock()
	l.queue = slices.Repeat([][]byte{{99}}, maxQueue-10) // as if sent, but that takes longer
	l.tx.Unlock()
	for range 11 {
		l.sendFin(0, provider.StatusOK)
	}
	e.ends()
	<-l.done
	v.alive(t)
}

// A peer that never ends its connections does not hold the link when we have ended all.
func TestNeverSettles(t *testing.T) {
	v, e, bad, h := target(t)
	there := e.Endpoint.(*endpoint).l
	other := h.connect(v.l.Addr())
	bad.mu.Lock() // its dispatcher, which is honest, would
	require.NoError(t, e.Close())
	there.reap()
	there.lose()
	_, _, err := unix.Recvfrom(there.fd, make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
	require.Equal(t, unix.EAGAIN, err, "another connection goes over it")
	other.Close()
	<-there.done
	bad.mu.Unlock()
	v.alive(t)
}

// TestOtherUser meets a process that is not trusted, from both sides.
func TestOtherUser(t *testing.T) {
	nobody := func(uint32) bool { return false }
	for _, c := range [][2]Config{{{Trust: nobody}, {}}, {{}, {Trust: nobody}}} {
		for i := range c {
			c[i].Space = space(t)
		}
		a, b := openSAN(t, c[0]), openSAN(t, c[1])
		l, err := b.Listen(loopback, 1)
		require.NoError(t, err)
		_, err = a.Dial(context.Background(), netip.AddrPort{}, l.Addr())
		require.Equal(t, provider.StatusNoListener, provider.StatusOf(err))
		require.ErrorContains(t, err, "another user")
		require.ErrorIs(t, err, fs.ErrPermission)
	}
}

// TestLimits runs out of memory, which fails one thing and nothing else.
func TestLimits(t *testing.T) {
	a := openSAN(t, Config{Space: space(t), Memory: 1 << 20, ConnMemory: 300 << 10})
	b := openSAN(t, Config{Space: space(t)})
	x, y := pair(t, a, b)
	_, err := x.Allocate(400 << 10)
	require.ErrorIs(t, err, provider.StatusLimit)
	r, err := x.Allocate(250 << 10)
	require.NoError(t, err)
	_, err = x.Allocate(100 << 10)
	require.ErrorIs(t, err, provider.StatusLimit)
	require.NoError(t, x.Deregister(r.Handle))
	x2, _ := pair(t, a, b)
	for range 3 {
		if _, err = x2.Allocate(290 << 10); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, provider.StatusLimit)
	y.receives(1, 64)
	x.say("hello")
	require.Equal(t, provider.Completion{Op: provider.OpRecv, Len: 5}, y.next())
}

func FuzzControl(f *testing.F) {
	for _, c := range []control{
		{kind: ctlSegment, seg: 1, size: 4096}, {kind: ctlRefused, reason: []byte("no")},
		{kind: ctlFin, conn: 5},
		{kind: ctlRequest, local: netip.MustParseAddrPort("127.0.0.1:5"), remote: netip.MustParseAddrPort("[fe80::1%lo]:6")},
		{kind: ctlRequest, local: netip.MustParseAddrPort("127.0.0.1:5"), remote: netip.MustParseAddrPort("127.0.0.1:6"), first: []byte("hello")},
	} {
		f.Add(c.append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parseControl(b)
		if err != nil {
			return
		}
		again, err := parseControl(c.append(nil))
		require.NoError(t, err)
		require.Equal(t, c, again)
	})
}

func FuzzGreeting(f *testing.F) {
	f.Add((&greeting{min: 1, max: 1}).append(nil, false), false)
	f.Add((&greeting{min: 1, max: 3, size: 4096}).append(nil, true), true)
	f.Fuzz(func(t *testing.T, b []byte, opening bool) {
		g, err := parseGreeting(b, opening)
		if err != nil {
			return
		}
		require.Equal(t, uint32(magic), binary.LittleEndian.Uint32(b))
		require.LessOrEqual(t, g.min, uint8(version))
	})
}
