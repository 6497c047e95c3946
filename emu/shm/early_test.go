//go:build linux

package shm

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"sansock/internal/regtable"
	"sansock/provider"
)

// acceptorFunc takes requests where they arrive.
type acceptorFunc func(r *Request) error

func (f acceptorFunc) Requested(r *Request) error { return f(r) }
func (f acceptorFunc) Withdrawn(*Request)         {}

// bindTo makes a node whose requests f takes, and another one to dial from.
func bindTo(t testing.TB, f acceptorFunc) (from *Node, at netip.AddrPort) {
	n, from := Open(Config{Space: space(t)}), Open(Config{Space: space(t)})
	at = netip.MustParseAddrPort("127.0.0.1:777")
	_, err := n.Bind(at, f)
	require.NoError(t, err)
	t.Cleanup(func() {
		from.Close()
		n.Close()
	})
	return from, at
}

// postOne posts a receive.
func postOne(e provider.Endpoint) (provider.Region, error) {
	r, err := e.Allocate(provider.MaxFirstMessage)
	if err == nil {
		err = e.PostRecv(provider.Recv{Buffer: r.Segment(0, provider.MaxFirstMessage)})
	}
	return r, err
}

func say(e provider.Endpoint, text string) error {
	return e.PostSend(provider.Send{Inline: [2][]byte{[]byte(text), nil}})
}

// hears returns the message that is there.
func hears(t testing.TB, e provider.Endpoint, r provider.Region) string {
	var c [1]provider.Completion
	require.Equal(t, 1, e.Poll(c[:]))
	require.Equal(t, provider.OpRecv, c[0].Op)
	require.Equal(t, provider.StatusOK, c[0].Status)
	return string(r.Bytes[:c[0].Len])
}

// quiet proves that nothing is left of connections on either side of the link.
func quiet(t testing.TB, n *Node) {
	idle := func(n *Node) bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		for l := range n.links {
			l.arena.mu.Lock()
			live := l.arena.live
			l.arena.mu.Unlock()
			l.mu.Lock()
			used := l.used + len(l.asked)
			l.mu.Unlock()
			if live+used > 0 {
				return false
			}
		}
		return len(n.flows[0])+len(n.flows[1]) == 0
	}
	require.Eventually(t, func() bool { return idle(n) }, 10*time.Second, time.Millisecond)
}

// A message travels with the request, and the answer with the acceptance: whoever is told has it.
func TestEarly(t *testing.T) {
	accepted := make(chan provider.Endpoint, 1)
	from, at := bindTo(t, func(r *Request) error {
		e, err := r.AcceptEarly(context.Background(), func(e provider.Endpoint) error {
			in, err := postOne(e)
			require.NoError(t, err)
			require.Equal(t, "hello", hears(t, e, in))
			require.NoError(t, say(e, "welcome"))
			_, err = postOne(e)
			return err
		})
		require.NoError(t, err)
		accepted <- e
		return nil
	})
	var in provider.Region
	e, err := from.DialEarly(context.Background(), at, at, func(e provider.Endpoint) error {
		var err error
		in, err = postOne(e)
		require.NoError(t, err)
		require.NoError(t, say(e, "hello"))
		require.Equal(t, provider.StatusNotReady, say(e, "again"), "there is no peer yet")
		x, err := e.Expose(make([]byte, 8), provider.RightRead)
		require.NoError(t, err)
		require.Equal(t, provider.StatusNotReady, e.PostWrite(provider.RDMA{Local: x.Segment(0, 8)}))
		var c [1]provider.Completion
		require.Zero(t, e.Poll(c[:]))
		require.False(t, e.Arm(provider.WakeNone))
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, "welcome", hears(t, e, in))
	peer := newEnd(t, <-accepted)
	require.NoError(t, say(e, "and on"))
	require.Equal(t, len("and on"), peer.next().Len, "the messages after that take the next receives")
	for _, x := range []provider.Endpoint{e, peer.Endpoint} {
		require.NoError(t, x.Close())
		for _, s := range x.(*endpoint).table.Slots {
			if s.State == regtable.Live && s.Common {
				x.(*endpoint).mu.Lock()
				x.(*endpoint).free(common(&s))
				x.(*endpoint).mu.Unlock()
			}
		}
	}
	quiet(t, from)
}

// Where a side does not want to go on, nothing is left of the connection, and the other learns of it.
func TestEarlyFails(t *testing.T) {
	no := errors.New("no")
	var listener atomic.Bool
	from, at := bindTo(t, func(r *Request) error {
		refuses := listener.Load()
		e, err := r.AcceptEarly(context.Background(), func(e provider.Endpoint) error {
			if refuses {
				say(e, "no")
				return no
			}
			return nil
		})
		if refuses {
			assert.Equal(t, no, err)
			return nil
		}
		if assert.NoError(t, err) {
			e.Close()
		}
		return nil
	})
	_, err := from.DialEarly(context.Background(), at, at, func(provider.Endpoint) error { return no })
	require.ErrorIs(t, err, no)
	quiet(t, from)
	listener.Store(true)
	_, err = from.DialEarly(context.Background(), at, at, func(provider.Endpoint) error { return nil })
	require.Equal(t, provider.StatusLink, provider.StatusOf(err))
	quiet(t, from)
	listener.Store(false)
	e, err := from.Dial(context.Background(), at, at)
	require.NoError(t, err, "the flow is free again")
	e.Close()
	quiet(t, from)
}

// A peer that answers before it has accepted, or with what makes no sense, is not listened to.
func TestEarlyHostile(t *testing.T) {
	from, at := bindTo(t, func(r *Request) error {
		r.inbox.events[0].Store(packEvent(evRequest, 0, 0, solicited, 0))
		r.inbox.events[1].Store(packEvent(evMessage, 0, 1<<20, solicited, 1))
		r.inbox.events[2].Store(packEvent(evFin, 0, 0, solicited, 2))
		r.inbox.arm.Store(7)
		return nil // and never answers
	})
	ctx, cancel := context.WithCancel(context.Background())
	_, err := from.DialEarly(ctx, at, at, func(e provider.Endpoint) error {
		defer time.AfterFunc(10*time.Millisecond, cancel)
		return say(e, "hello")
	})
	require.Error(t, err)
	from.mu.Lock()
	links := slices.Collect(maps.Keys(from.links))
	from.mu.Unlock()
	for _, l := range links {
		l.abort() // nor does the request end
		<-l.done
	}
}

// A meeting that others keep remembering, although nobody listens there any more, is not tried for ever.
func TestMeetingIsTriedOnce(t *testing.T) {
	n, from := Open(Config{Space: space(t)}), Open(Config{Space: space(t)})
	defer n.Close()
	defer from.Close()
	at := netip.MustParseAddrPort("127.0.0.1:777")
	r, err := n.Bind(at, acceptorFunc(func(r *Request) error { return r.Reject(nil) }))
	require.NoError(t, err)
	_, err = from.Dial(context.Background(), at, at)
	require.Equal(t, provider.StatusRefused, provider.StatusOf(err))
	l := from.metAt(at)
	require.NotNil(t, l)
	require.NoError(t, r.Close())
	tries := 0
	_, err = from.DialEarly(context.Background(), at, at, func(provider.Endpoint) error {
		from.remember(at, l)
		tries++
		if tries > 10 {
			return errors.New("it does not end")
		}
		return nil
	})
	require.Equal(t, provider.StatusNoListener, provider.StatusOf(err))
	require.Equal(t, 1, tries, "then the rendezvous tells")
}

// Nothing but an eventfd is written to for a doorbell.
func TestBellIsEventfd(t *testing.T) {
	_, bell, err := newBell()
	require.NoError(t, err)
	require.NoError(t, checkBell(bell))
	_, full, err := newBell()
	require.NoError(t, err)
	_, err = unix.Write(full, []byte{0xfd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	require.NoError(t, err)
	require.NoError(t, checkBell(full), "to add nothing does not wait")
	bad := func(name string, fd int, err error) {
		require.NoError(t, err)
		require.Error(t, checkBell(fd), name)
		unix.Close(fd)
	}
	fd, err := unix.EpollCreate1(0)
	bad("epoll", fd, err)
	fd, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, 0)
	bad("timer", fd, err)
	fd, err = unix.InotifyInit1(0)
	bad("inotify", fd, err)
	fd, err = unix.MemfdCreate("x", 0)
	bad("memory", fd, err)
	fd, err = unix.Open("/dev/null", unix.O_RDWR, 0)
	bad("null", fd, err)
	var p [2]int
	require.NoError(t, unix.Pipe(p[:]))
	bad("pipe", p[1], nil)
	unix.Close(p[0])
	s, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	bad("socket", s[0], err)
	unix.Close(s[1])
}

// Ends that nobody waits for are found: by who uses the number of the connection again, and otherwise by the reaper.
func TestFinUnseen(t *testing.T) {
	accepted := make(chan provider.Endpoint, 1)
	from, at := bindTo(t, func(r *Request) error {
		e, err := r.Accept(context.Background())
		accepted <- e
		return err
	})
	var l *link
	for range 3 {
		e, err := from.Dial(context.Background(), at, at)
		require.NoError(t, err)
		require.Zero(t, e.(*endpoint).id, "the number of the one before")
		require.True(t, l == nil || l == e.(*endpoint).l, "and the link")
		l = e.(*endpoint).l
		(<-accepted).Close()
		e.Close()
	}
	quiet(t, from)

	e, err := from.Dial(context.Background(), at, at)
	require.NoError(t, err)
	peer := <-accepted
	e.Close()
	quiet(t, from) // although the peer waits for nothing
	var c [1]provider.Completion
	require.Equal(t, 1, peer.Poll(c[:]))
	require.Equal(t, provider.Completion{Op: provider.OpDisconnect, Status: provider.StatusDisconnected}, c[0])
	require.NoError(t, peer.Close())
	require.Zero(t, peer.Poll(c[:]))

	e, err = from.Dial(context.Background(), at, at)
	require.NoError(t, err)
	(<-accepted).Close()
	e.Close()
	if e.Poll(c[:]) > 0 { // the dispatcher has seen the peer's end before ours
		require.Equal(t, provider.OpDisconnect, c[0].Op)
	}
	require.Zero(t, e.Poll(c[:]), "who has closed hears nothing of the peer's end")
	quiet(t, from)
}

// A dialer that dies while its request is being accepted takes the shared memory away only when nobody uses it any more.
func TestDialerDiesBeforeAcceptance(t *testing.T) {
	for name, fin := range map[string]bool{"lost": false, "given up, then lost": true} {
		t.Run(name, func(t *testing.T) {
			requests := make(chan *Request, 1)
			from, at := bindTo(t, func(r *Request) error {
				requests <- r
				return nil
			})
			dialed := make(chan error, 1)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			go func() {
				_, err := from.DialEarly(ctx, at, at, func(e provider.Endpoint) error { return say(e, "hello") })
				dialed <- err
			}()
			r := <-requests
			_, err := r.AcceptEarly(context.Background(), func(e provider.Endpoint) error {
				in, err := postOne(e)
				require.NoError(t, err)
				require.Equal(t, "hello", hears(t, e, in))
				if fin {
					cancel()
					require.Error(t, <-dialed)
					require.Eventually(t, func() bool {
						r.l.mu.Lock()
						defer r.l.mu.Unlock()
						return r.l.asked[r.id] == nil
					}, 10*time.Second, time.Millisecond)
				}
				r.l.abort()
				<-r.l.done
				assert.Equal(t, provider.StatusDisconnected, say(e, "welcome"))
				return nil
			})
			require.Equal(t, provider.StatusDisconnected, provider.StatusOf(err))
			cancel()
			if !fin {
				require.Error(t, <-dialed)
			}
			n := r.l.node
			require.Eventually(t, func() bool { // who has lost the link dials anew, and gives that up with the context
				n.mu.Lock()
				defer n.mu.Unlock()
				return len(n.flows[side(false)]) == 0
			}, 10*time.Second, time.Millisecond)
		})
	}
}

// A peer that writes where it expects the next dialer's inbox, before it can know of it, ends that dial, which leaves nothing.
func TestInboxForeseen(t *testing.T) {
	for name, events := range map[string][]uint64{
		"an acceptance": {packEvent(evAccepted, 0, 1, solicited, 0), packEvent(evFin, 0, 0, 0, 1)},
		"an end":        {packEvent(evFin, 0, 0, 0, 0)},
		"nonsense":      {packEvent(evMessage, 0, 5, 0, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			from, at := bindTo(t, func(r *Request) error { return nil }) // never answers
			_, err := from.DialEarly(context.Background(), at, at, func(e provider.Endpoint) error {
				for i, w := range events {
					e.(*endpoint).in.events[i].Store(w)
				}
				var c [1]provider.Completion
				e.Poll(c[:])
				return nil
			})
			require.Error(t, err)
			quiet(t, from)
		})
	}
}

// dialed is the dialing end of a connection.
func dialed(t *testing.T) *endpoint {
	from, at := bindTo(t, func(r *Request) error {
		e, err := r.Accept(context.Background())
		if err == nil {
			t.Cleanup(func() { e.Close() })
		}
		return err
	})
	ep, err := from.Dial(context.Background(), at, at)
	require.NoError(t, err)
	t.Cleanup(func() { ep.Close() })
	return ep.(*endpoint)
}

// Who armed before the acceptance is woken by what comes after it.
func TestArmedBeforeAcceptance(t *testing.T) {
	e := dialed(t)
	require.False(t, e.Arm(provider.WakeAny))
	e.mu.Lock()
	defer e.mu.Unlock()
	out := e.out
	e.stage = stageAsked
	require.Equal(t, taken, e.welcomed(0)) // by who looks for it, before the peer rings, which it then does not
	require.Equal(t, e.arming(), e.in.arm.Load())
	e.out = out
}

// After the request nothing is taken that would have to travel with it.
func TestNothingBetweenRequestAndAcceptance(t *testing.T) {
	var dialing provider.Endpoint
	from, at := bindTo(t, func(r *Request) error {
		assert.Equal(t, provider.StatusNotReady, say(dialing, "too late"))
		return provider.StatusRefused
	})
	_, err := from.DialEarly(context.Background(), at, at, func(e provider.Endpoint) error {
		dialing = e
		return nil
	})
	require.Equal(t, provider.StatusRefused, provider.StatusOf(err))
}

// The last event is the last that a side touches of the peer's inbox: the peer may use that for another connection as soon as it
// has seen it.
func TestNothingAfterTheEnd(t *testing.T) {
	e := dialed(t)
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	defer unix.Munmap(page)
	e.mu.Lock()
	defer e.mu.Unlock()
	arm := e.out.arm
	e.out.arm = &words(page)[0]
	func() {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() { require.NotNil(t, recover(), "the arming is not taken") }()
		e.tell(provider.StatusDisconnected)
	}()
	e.out.arm = arm
	require.Zero(t, e.out.events[e.out.given%slots].Load())
	require.Zero(t, e.out.given)
}
