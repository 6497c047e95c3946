//go:build linux

package shm

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"sansock/provider"
	"sansock/session"
)

// park takes the parking place of e's link.
func park(t testing.TB, e provider.Endpoint) {
	defer e.(*endpoint).waiter.Pin()() // the witness waits, too
	require.True(t, e.(*endpoint).Seat())
}

// sleep sleeps parked, in a goroutine. It returns a channel that is closed when that is over.
func sleep(t testing.TB, e provider.Endpoint) <-chan struct{} {
	park(t, e)
	require.False(t, e.Arm(provider.WakeAny))
	over := make(chan struct{})
	go func() {
		defer close(over)
		e.(*endpoint).Sleep(false)
	}()
	return over
}

// asleep reports whether somebody is parked.
func asleep() bool {
	buf := make([]byte, 1<<18)
	for _, stack := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(stack, "[IO wait") && strings.Contains(stack, "(*endpoint).Sleep(") {
			return true
		}
	}
	return false
}

// soon waits for what has to happen.
func soon(t testing.TB, over <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-over:
	case <-time.After(20 * time.Second):
		buf := make([]byte, 1<<20)
		t.Fatalf("%s\n%s", what, buf[:runtime.Stack(buf, true)])
	}
}

// moments calls f for sleepers in any stage of going to sleep.
func moments(t testing.TB, f func()) {
	for i := range 20 {
		for range i * 50 {
			runtime.Gosched()
		}
		f()
	}
}

// TestPark wakes who sleeps parked, in every way there is.
func TestPark(t *testing.T) {
	for name, wake := range map[string]func(e *end, peer *endpoint, h *hostile){
		"message":   func(_ *end, peer *endpoint, _ *hostile) { peer.PostSend(provider.Send{Inline: [2][]byte{{1}}}) },
		"interrupt": func(e *end, _ *endpoint, _ *hostile) { e.Endpoint.(*endpoint).Interrupt() },
		"close":     func(e *end, _ *endpoint, _ *hostile) { e.Close() },
		"the peer's close": func(_ *end, peer *endpoint, _ *hostile) {
			peer.Close()
		},
		"the end of the link": func(_ *end, _ *endpoint, h *hostile) { h.l.abort() },
	} {
		t.Run(name, func(t *testing.T) {
			_, e, peer, h := target(t)
			e.receives(1, 64)
			over := sleep(t, e.Endpoint)
			wake(e, peer, h)
			soon(t, over, "nothing wakes")
		})
	}
}

// TestParkAfterArming: who sits down arms anew, though the same arming stands, as the peer has to
// ring another bell.
func TestParkAfterArming(t *testing.T) {
	_, e, peer, _ := target(t)
	e.receives(1, 64)
	require.False(t, e.Arm(provider.WakeAny))
	over := sleep(t, e.Endpoint)
	require.Equal(t, uint64(provider.WakeAny)|parked, e.Endpoint.(*endpoint).in.arm.Load())
	peer.PostSend(provider.Send{Inline: [2][]byte{{1}}})
	soon(t, over, "nothing wakes")
}

// TestParkAfterTheEnd: an endpoint that is over is not parked. A session that waits for its peer's
// new end would not sleep in it, but spin.
func TestParkAfterTheEnd(t *testing.T) {
	_, e, peer, _ := target(t)
	x := e.Endpoint.(*endpoint)
	peer.Close()
	require.Equal(t, provider.OpDisconnect, e.next().Op)
	defer x.waiter.Pin()() // the witness waits, too
	require.False(t, x.Seat())
	require.False(t, x.l.parking.taken.Load(), "it is left to others")
}

// TestParkInterrupts interrupts sleeps at any moment, and none is left over but as the one that
// ends for no reason.
func TestParkInterrupts(t *testing.T) {
	_, e, peer, _ := target(t)
	e.receives(48, 64)
	x := e.Endpoint.(*endpoint)
	for i := range 2000 {
		park(t, x)
		ready := x.Arm(provider.WakeAny)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range i % 7 {
				runtime.Gosched()
			}
			x.Interrupt()
		}()
		x.Sleep(ready)
		<-done
	}
	// It still sleeps, and is woken.
	x.park.roused.Store(false)
	over := sleep(t, x)
	peer.PostSend(provider.Send{Inline: [2][]byte{{1}}})
	soon(t, over, "a message does not wake")
}

// saturate makes every write to an eventfd block that would not leave it as it is: its counter is
// full, and O_NONBLOCK, which belongs to both processes, is off.
func saturate(t testing.TB, fd int) {
	// As full as it can be made from here.
	for _, n := range []uint64{1<<64 - 2, 1<<64 - 3, 1} {
		b := binary.NativeEndian.AppendUint64(nil, n)
		unix.SetNonblock(fd, true)
		unix.Write(fd, b)
	}
	_, err := unix.Write(fd, binary.NativeEndian.AppendUint64(nil, 1))
	require.Equal(t, unix.EAGAIN, err)
	require.NoError(t, unix.SetNonblock(fd, false))
}

// TestFullBells has a peer fill the counters of all doorbells and make them block. Nobody is kept
// waiting: not who rings, not who sleeps, not who wants to wake him.
func TestFullBells(t *testing.T) {
	for name, wake := range map[string]func(e *end, h *hostile){
		"interrupt":           func(e *end, _ *hostile) { e.Endpoint.(*endpoint).Interrupt() },
		"close":               func(e *end, _ *hostile) { e.Close() },
		"the end of the link": func(_ *end, h *hostile) { h.l.abort() },
	} {
		t.Run(name, func(t *testing.T) {
			v, e, peer, h := target(t)
			peer.Allocate(1 << 10)
			r, err := peer.Allocate(640)
			require.NoError(t, err)
			for i := range 10 {
				require.NoError(t, peer.PostRecv(provider.Recv{Buffer: r.Segment(i*64, 64)}))
			}
			own, err := h.l.bell.SyscallConn()
			require.NoError(t, err)
			require.NoError(t, own.Control(func(fd uintptr) { saturate(t, int(fd)) }))
			require.NoError(t, h.l.parking.conn.Control(func(fd uintptr) { saturate(t, int(fd)) }))
			saturate(t, h.l.peerBell)
			saturate(t, h.l.parking.peer)
			for i := range 10 {
				peer.in.arm.Store(uint64(provider.WakeAny) | uint64(i%2)*parked)
				h.l.hdr.sleeps.Store(1)
				require.NoError(t, e.PostSend(provider.Send{Inline: [2][]byte{{1}}}))
			}
			over := sleep(t, e.Endpoint)
			wake(e, h)
			soon(t, over, "nothing wakes")
			v.alive(t)
		})
	}
}

// TestEmptyBell has a peer take everything out of the counter of the parking place's doorbell.
func TestEmptyBell(t *testing.T) {
	_, e, _, h := target(t)
	_, err := unix.Read(h.l.parking.peer, make([]byte, 8))
	require.NoError(t, err)
	over := sleep(t, e.Endpoint)
	e.Endpoint.(*endpoint).Interrupt()
	soon(t, over, "an interrupt does not wake")
}

// TestParkArmWord has a peer write into the word by which the sleeper is armed.
func TestParkArmWord(t *testing.T) {
	for name, word := range map[string]uint64{
		"taken": 0, "parked alone": parked, "not parked": uint64(provider.WakeAny), "solicited": uint64(provider.WakeSolicited),
		"absurd": 0x5555_5555_5555_5555, "absurd, not parked": 0x5555_5555_5555_5555 &^ parked, "all": 1<<64 - 1,
	} {
		t.Run(name, func(t *testing.T) {
			v, e, peer, h := target(t)
			e.receives(20, 64)
			moments(t, func() {
				over := sleep(t, e.Endpoint)
				peer.out.arm.Store(word)
				e.Endpoint.(*endpoint).Interrupt()
				soon(t, over, "an interrupt does not wake")
			})
			// What comes with a ring is found, whatever the word says.
			over := sleep(t, e.Endpoint)
			peer.out.arm.Store(word)
			require.NoError(t, peer.PostSend(provider.Send{Inline: [2][]byte{{1}}}))
			ringBell(h.l.parking.peer)
			soon(t, over, "a ring does not wake")
			require.Equal(t, provider.OpRecv, e.next().Op)
			v.alive(t)
		})
	}
}

// TestParkFlood rings the parking place without end. Its link loses the place, and serves its
// connections in the other way.
func TestParkFlood(t *testing.T) {
	for name, word := range map[string]uint64{"armed": uint64(provider.WakeAny) | parked, "taken": 0} {
		t.Run(name, func(t *testing.T) {
			v, e, peer, h := target(t)
			e.receives(2, 64)
			stop := make(chan struct{})
			var wg sync.WaitGroup
			defer wg.Wait()
			defer close(stop)
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						peer.out.arm.Store(word)
						ringBell(h.l.parking.peer)
					}
				}
			})
			for !e.Endpoint.(*endpoint).l.parking.abused.Load() {
				soon(t, sleep(t, e.Endpoint), "the flood does not wake")
			}
			require.False(t, e.Endpoint.(*endpoint).Seat())
			for range 5 {
				v.alive(t)
			}
			require.NoError(t, peer.PostSend(provider.Send{Inline: [2][]byte{{1}}}))
			// A peer that takes the arming away need not be waited for: polling finds the message.
			if word == 0 {
				for e.Poll(e.buf[:]) == 0 {
					runtime.Gosched()
				}
			} else {
				e.buf[0] = e.next()
			}
			require.Equal(t, provider.OpRecv, e.buf[0].Op)
			// To interrupt nobody who sleeps does no harm.
			e.Endpoint.(*endpoint).Interrupt()
		})
	}
}

// TestParkIdle sleeps over and over with nothing coming, as a server with short deadlines does.
// That is no abuse.
func TestParkIdle(t *testing.T) {
	_, e, _, _ := target(t)
	for range 2 * maxFalseRings {
		over := sleep(t, e.Endpoint)
		for gone := false; !gone && !asleep(); { // or it was the last interrupt that has ended it
			select {
			case <-over:
				gone = true
			default:
				runtime.Gosched()
			}
		}
		e.Endpoint.(*endpoint).Interrupt()
		soon(t, over, "an interrupt does not wake")
	}
	require.False(t, e.Endpoint.(*endpoint).l.parking.abused.Load())
}

func TestParkAllocations(t *testing.T) {
	_, e, _, _ := target(t)
	x := e.Endpoint.(*endpoint)
	park(t, x)
	x.Sleep(true)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		x.l.parking.taken.Store(true)
		x.Arm(provider.WakeAny)
		x.Interrupt()
		x.Sleep(false)
	}))
}

// settled has a session's Read sleep parked, and returns its result.
func settled(t testing.TB, c *session.Conn, e *endpoint) chan error {
	failed := make(chan error, 1)
	t.Cleanup(e.waiter.Pin())
	go func() {
		_, err := c.Read(make([]byte, 1))
		failed <- err
	}()
	require.Eventually(t, e.l.parking.taken.Load, 10*time.Second, time.Millisecond, "the Read does not park")
	return failed
}

// TestParkKilled kills the peer of a Read that sleeps parked.
func TestParkKilled(t *testing.T) {
	for range 3 {
		s := openSAN(t, Config{Space: space(t)})
		p := start(t, "echo", space(t))
		c, e := p.dialBoth(t, s, session.Config{})
		failed := settled(t, c, e)
		before := time.Now()
		p.kill()
		require.Equal(t, io.EOF, <-failed, "as over TCP")
		t.Logf("noticed after %v", time.Since(before))
		c.Close()
		require.Eventually(t, func() bool { return idle(s) }, 5*time.Second, time.Millisecond, "something is left of the dead")
	}
}

// TestParkStopped stops the peer of a Read that sleeps parked. A deadline and Close end that.
func TestParkStopped(t *testing.T) {
	s := openSAN(t, Config{Space: space(t)})
	p := start(t, "echo", space(t))
	c, e := p.dialBoth(t, s, session.Config{})
	failed := settled(t, c, e)
	require.NoError(t, p.Process.Signal(syscall.SIGSTOP))
	require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
	require.ErrorIs(t, <-failed, os.ErrDeadlineExceeded)
	require.NoError(t, c.SetReadDeadline(time.Time{}))
	go func() {
		_, err := c.Read(make([]byte, 1))
		failed <- err
	}()
	require.Eventually(t, s.links0(t).parking.taken.Load, 10*time.Second, time.Millisecond)
	require.NoError(t, c.Close())
	require.ErrorIs(t, <-failed, net.ErrClosed)
	require.NoError(t, p.Process.Signal(syscall.SIGCONT))
}

// TestParkRaces has all that can end a sleep come at the same time as the messages of a ping-pong.
func TestParkRaces(t *testing.T) {
	rounds := 60
	if raced || testing.Short() {
		rounds = 15
	}
	s := openSAN(t, Config{Space: space(t)})
	p := start(t, "echo", space(t))
	var seats int
	for round := range rounds {
		c, e := p.dialBoth(t, s, session.Config{})
		t.Cleanup(e.waiter.Pin())
		var wg sync.WaitGroup
		stop := make(chan struct{})
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(round)))
			for {
				select {
				case <-stop:
					return
				default:
				}
				switch at := time.Now().Add(time.Duration(r.IntN(100)) * time.Microsecond); r.IntN(3) {
				case 0:
					c.SetReadDeadline(at)
				case 1:
					c.SetReadDeadline(time.Time{})
				default:
					e.Interrupt()
				}
				for range r.IntN(50) {
					runtime.Gosched()
				}
				if e.l.parking.taken.Load() {
					seats++
				}
			}
		})
		b := make([]byte, 1)
		for i := range 50 {
			want := byte(i)
			_, err := c.Write([]byte{want})
			require.NoError(t, err)
			for n := 0; n == 0; {
				if n, err = c.Read(b); err != nil {
					require.ErrorIs(t, err, os.ErrDeadlineExceeded)
					runtime.Gosched() // who lifts the deadline may have no other processor
				}
			}
			require.Equal(t, want, b[0])
		}
		// The last Read ends with Close, whatever else goes on.
		wg.Go(func() {
			for range round * 20 {
				runtime.Gosched()
			}
			c.Close()
		})
		over := make(chan struct{})
		go func() {
			defer close(over)
			for {
				if _, err := c.Read(b); err == net.ErrClosed {
					return
				}
				runtime.Gosched()
			}
		}()
		soon(t, over, "Close does not end a Read")
		close(stop)
		wg.Wait()
	}
	t.Logf("the place was seen taken %d times", seats)
}
