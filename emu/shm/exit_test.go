//go:build linux

package shm

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sansock/provider"
)

// How the process of a peer ends, and what it leaves.

// lives are what a peer does with the open message that it gets, by name, and the status with which
// its death is to be told. It is not armed, and has posted receives.
var lives = map[string]struct {
	do   func(e *end)
	want provider.Status
}{
	"reads it": {func(e *end) { e.next() }, provider.StatusExited},
	"reads it later": {func(e *end) {
		e.next()
		e.core().Unread(true)
		e.core().Unread(false)
	}, provider.StatusExited},
	"polls it":     {func(e *end) { e.next(); e.core().Unread(true) }, provider.StatusExitedUnread},
	"does nothing": {func(*end) {}, provider.StatusExitedUnread},
	"is woken by it": {func(e *end) {
		if !e.Arm(provider.WakeAny) {
			<-e.wake
		}
	}, provider.StatusExitedUnread},
	"closes":                 {func(e *end) { e.Close() }, provider.StatusDisconnected},
	"reads it and closes":    {func(e *end) { e.next(); e.Close() }, provider.StatusDisconnected},
	"gets nothing":           {func(e *end) {}, provider.StatusExited},
	"gets one that is taken": {func(e *end) {}, provider.StatusExited},
}

// lastWords are what a peer sends before it dies. The last message, and no other, has one byte.
const lastWords = "one, two, and what was appended to it."

// mortal is a process to be ended. The first message of a connection says what it does there.
func mortal(_ *san, l provider.Listener) error {
	go func() { // an exec ends it as far as others can see
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGUSR1)
		<-c
		os.Setenv(roleVar, "husk")
		panic(syscall.Exec("/proc/self/exe", os.Args[:1], os.Environ()))
	}()
	for {
		ep, err := accept(l)
		if err != nil {
			return err
		}
		go func() {
			e := newEnd(nil, ep)
			r, err := e.Allocate(4 * 64)
			if err != nil {
				panic(err)
			}
			for i := range 4 {
				e.PostRecv(provider.Recv{Context: uint64(i), Buffer: r.Segment(i*64, 64)})
			}
			c := e.next()
			life := lives[string(r.Bytes[c.Context*64:][:c.Len])]
			e.Arm(provider.WakeNone)
			e.PostSend(provider.Send{Inline: [2][]byte{[]byte("ready")}, Solicited: true})
			life.do(e)
			words := []byte(lastWords)
			e.PostSend(provider.Send{Inline: [2][]byte{words[:5]}, Solicited: true})
			e.PostSend(provider.Send{Inline: [2][]byte{words[5:8]}, Solicited: true, Open: true})
			last := len(words) - 1
			if !e.core().Append(words[8:last]) { // a wake-up of before has led to it
				e.PostSend(provider.Send{Inline: [2][]byte{words[8:last]}, Solicited: true})
			}
			e.PostSend(provider.Send{Inline: [2][]byte{words[last:]}, Solicited: true})
		}()
	}
}

// husk is what is left of a process after an exec.
func husk() int {
	io.Copy(io.Discard, os.Stdin)
	return 0
}

// came waits until event i of the connection has come, or its end, and takes nothing.
func (x *end) came(i uint32) {
	e := x.core()
	require.Eventually(x.t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.over() || e.in.taken > i || current(e.in.events[i%slots].Load(), i)
	}, 10*time.Second, 100*time.Microsecond)
}

// saidAll waits until the last words are here, or the end, and takes nothing.
func (x *end) saidAll() {
	e := x.core()
	require.Eventually(x.t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		for i := e.in.taken; !e.over() && current(e.in.events[i%slots].Load(), i); i++ {
			if k, _, n := unpackEvent(e.in.events[i%slots].Load()); k == evMessage && n == 1 {
				return true
			}
		}
		for i := range e.cq.ring.Len() {
			if e.cq.ring.At(i).n == 1 {
				return true
			}
		}
		return e.over()
	}, 10*time.Second, 100*time.Microsecond)
}

// TestDeath ends a process in each way, in each state of its connections. What it had sent is
// received after its death, and then it is told how it ended. Nothing is left.
//
// By hand: SANSOCK_DEATHS=100.
func TestDeath(t *testing.T) {
	rounds := 20
	if raced || testing.Short() {
		rounds = 3
	}
	if v := os.Getenv("SANSOCK_DEATHS"); v != "" {
		rounds, _ = strconv.Atoi(v)
	}
	for how, end := range map[string]func(p *process){
		"exit":    func(p *process) { p.in.Close() },
		"SIGKILL": func(p *process) { p.Process.Kill() },
		"exec":    func(p *process) { p.Process.Signal(syscall.SIGUSR1) },
	} {
		t.Run(how, func(t *testing.T) {
			s := openSAN(t, Config{Space: space(t)})
			for range rounds {
				p := start(t, "mortal", space(t))
				ends := make(map[string]*deathbed)
				for life := range lives {
					ends[life] = attend(t, s, p, life)
				}
				for life, d := range ends {
					if lives[life].want != provider.StatusDisconnected {
						d.saidAll()
					} else {
						d.came(2) // it was accepted, was ready, and has closed
					}
				}
				end(p)
				for life, d := range ends {
					d.hears(life)
				}
				p.kill()
			}
			require.Eventually(t, func() bool { return idle(s) }, 5*time.Second, time.Millisecond, "something is left of the dead")
		})
	}
}

// deathbed is an end whose peer is going to die.
type deathbed struct {
	*end
	r provider.Region
}

// attend makes a connection, and sends the message that it is about.
func attend(t testing.TB, s *san, p *process, life string) *deathbed {
	ep, err := s.Dial(context.Background(), netip.AddrPort{}, p.addr)
	require.NoError(t, err)
	d := &deathbed{end: newEnd(t, ep)}
	d.r = d.receives(6, 64)
	require.NoError(t, d.PostSend(provider.Send{Inline: [2][]byte{[]byte(life)}, Solicited: true}))
	require.Equal(t, provider.Completion{Op: provider.OpRecv, Len: len("ready")}, d.next())
	d.Arm(provider.WakeNone)
	switch life {
	case "gets nothing", "closes":
	case "gets one that is taken": // it is not open
		d.say("hello")
	default:
		d.open([]byte("hello"))
		d.core().Append([]byte(", world"))
	}
	return d
}

// hears has the end receive what there is, and then hear of the death.
func (d *deathbed) hears(life string) {
	d.Arm(provider.WakeAny)
	var words []byte
	next, c := uint64(1), d.next()
	for ; c.Op == provider.OpRecv && c.Status == provider.StatusOK; next, c = next+1, d.next() {
		require.Equal(d.t, next, c.Context)
		words = append(words, d.r.Bytes[next*64:][:c.Len]...)
	}
	if lives[life].want == provider.StatusDisconnected {
		require.Empty(d.t, words, life)
	} else {
		require.Equal(d.t, lastWords, string(words), life)
	}
	for ; next < 6; next, c = next+1, d.next() {
		require.Equal(d.t, provider.Completion{Op: provider.OpRecv, Context: next, Status: provider.StatusAborted}, c, life)
	}
	require.Equal(d.t, provider.Completion{Op: provider.OpDisconnect, Status: lives[life].want}, c, life)
	require.False(d.t, d.core().Append([]byte("!")), life)
	require.NoError(d.t, d.Deregister(d.r.Handle))
	require.NoError(d.t, d.Close())
}

// TestDeathUnheard: what the dead had sent over the socket counts, also where it had not received
// all that was sent to it.
func TestDeathUnheard(t *testing.T) {
	p := start(t, "writing", space(t))
	s := openSAN(t, Config{Space: space(t)})
	ep, err := s.Dial(context.Background(), netip.AddrPort{}, p.addr)
	require.NoError(t, err)
	defer ep.Close()
	e := newEnd(t, ep)
	e.receives(1, 64)
	mem := make([]byte, maxRDMA)
	target, err := e.Expose(mem, provider.RightWrite)
	require.NoError(t, err)
	l := e.core().l
	l.rx.Lock()
	e.say(string(target.Descriptor[:]))
	e.came(2) // it was accepted, has written, and says so
	require.NoError(t, p.Process.Signal(syscall.SIGSTOP))
	_, err = e.Allocate(ownSegment) // which the peer has to be told of
	require.NoError(t, err)
	p.kill()
	l.rx.Unlock()
	require.Equal(t, provider.Completion{Op: provider.OpRecv, Len: len("written")}, e.next())
	require.Equal(t, uint64(4711), binary.LittleEndian.Uint64(mem[maxRDMA-8:]))
	require.Equal(t, provider.Completion{Op: provider.OpDisconnect, Status: provider.StatusExited}, e.next())
}

// writing writes to its peer, out of memory that has to be announced first.
func writing(_ *san, l provider.Listener) error {
	ep, err := accept(l)
	if err != nil {
		return err
	}
	e := newEnd(nil, ep)
	m, err := e.Allocate(64)
	if err != nil {
		return err
	}
	e.PostRecv(provider.Recv{Buffer: m.Segment(0, 64)})
	e.next()
	b := make([]byte, maxRDMA)
	binary.LittleEndian.PutUint64(b[maxRDMA-8:], 4711)
	if err := e.PostWrite(provider.RDMA{Local: provider.Segment{Bytes: b}, Remote: provider.Descriptor(m.Bytes)}); err != nil {
		return err
	}
	e.PostSend(provider.Send{Inline: [2][]byte{[]byte("written")}, Solicited: true})
	select {}
}

// TestGivenUp: a link that a living process gives up does not look as if that had ended, to either
// side.
func TestGivenUp(t *testing.T) {
	for name, giveUp := range map[string]func(h *hostile, l *link){
		"by the peer": func(h *hostile, _ *link) { h.l.abort() },
		"by itself":   func(_ *hostile, l *link) { l.abort() },
		"for nonsense": func(h *hostile, _ *link) {
			h.l.sendControl(control{kind: ctlRefused})
		},
		"for a socket that is full": func(_ *hostile, l *link) {
			l.tx.Lock()
			l.queue = append(l.queue, make([][]byte, maxQueue)...)
			l.tx.Unlock()
			l.sendFin(0, provider.StatusOK)
		},
	} {
		t.Run(name, func(t *testing.T) {
			v, e, bad, h := target(t)
			other := newEnd(t, bad)
			r, err := other.Allocate(64)
			require.NoError(t, err)
			require.NoError(t, other.PostRecv(provider.Recv{Buffer: r.Segment(0, 64)}))
			e.open([]byte("not taken"))
			giveUp(h, e.core().l)
			for _, x := range []*end{e, other} {
				c := x.next()
				for c.Op != provider.OpDisconnect {
					c = x.next()
				}
				require.Equal(t, provider.StatusDisconnected, c.Status, fmt.Sprint(x == e))
			}
			v.alive(t)
		})
	}
}
