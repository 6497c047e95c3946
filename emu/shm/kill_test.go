//go:build linux

package shm

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sansock/provider"
	"sansock/session"
)

// rdma has all that is written go by RDMA, as far as it can.
var rdma = session.Config{Threshold: 1}

// peerVar is the address of the process that has started this one.
const peerVar = "SANSOCK_SHM_PEER"

// busy is a process to be killed: it does all there is to do at the same time. The first byte of a connection says
// what it is for.
func busy(s *san, l provider.Listener) error {
	peer, err := netip.ParseAddrPort(os.Getenv(peerVar))
	if err != nil {
		return err
	}
	go func() {
		for {
			ep, err := s.Dial(context.Background(), netip.AddrPort{}, peer)
			if err != nil {
				return // the other one has ended, and so will this one
			}
			if c, err := session.Negotiate(context.Background(), ep, session.Dialer, rdma); err == nil {
				c.Write([]byte{1})
				c.Read(make([]byte, 1))
				c.Close()
			}
		}
	}()
	for {
		ep, err := accept(l)
		if err != nil {
			return err
		}
		go func() {
			c, err := session.Negotiate(context.Background(), ep, session.Listener, rdma)
			if err != nil {
				return
			}
			var what [1]byte
			if _, err = c.Read(what[:]); err != nil {
				return
			}
			switch what[0] {
			case 'm':
				select {}
			case 'e':
				echo(conn{c})
			case 'k':
				copyOut(conn{c})
			case 's':
				for b := make([]byte, 1<<20); err == nil; {
					_, err = c.Write(b)
				}
			}
		}()
	}
}

// TestKilled kills a peer at any moment, while everything waits for it or moves data with it: Read, Write, Dial, Accept, with
// messages and RDMA both ways. Everything ends, and nothing is left.
//
// By hand: SANSOCK_KILLS=1000.
func TestKilled(t *testing.T) {
	rounds := 10
	if raced || testing.Short() {
		rounds = 3
	}
	if v := os.Getenv("SANSOCK_KILLS"); v != "" {
		rounds, _ = strconv.Atoi(v)
	}
	s := openSAN(t, Config{Space: space(t)})
	l, err := s.Listen(loopback, 64)
	require.NoError(t, err)
	served := make(chan struct{})
	go func() {
		defer close(served)
		serveWith(echo)(s, l) // an Accept that waits through all of it
	}()
	r := rand.New(rand.NewPCG(5, uint64(time.Now().UnixNano())))
	var before leftovers
	var worst time.Duration
	late := 0
	for round := range rounds {
		if round == 1 {
			before = left(t, s)
		}
		p := start(t, "busy", space(t), peerVar+"="+l.Addr().String())
		q := start(t, "deaf", space(t))
		type failure struct {
			what string
			err  error
			at   time.Time
		}
		failed := make(chan failure, 16)
		var conns []*session.Conn
		do := func(cfg session.Config, job string, f func(c *session.Conn) error) {
			c := p.dialWith(t, s, cfg)
			conns = append(conns, c)
			_, err := c.Write([]byte(job)[:1])
			require.NoError(t, err)
			go func() {
				var err error
				for err == nil {
					err = f(c)
				}
				failed <- failure{job, err, time.Now()}
			}()
		}
		read := func(c *session.Conn) error { _, err := c.Read(make([]byte, 1<<20)); return err }
		write := func(c *session.Conn) error { _, err := c.Write(make([]byte, 4<<20)); return err }
		do(session.Config{}, "mute: read", read)
		do(session.Config{}, "mute: write", write)
		do(rdma, "mute: RDMA write", write)
		do(session.Config{}, "sink", write)
		do(rdma, "sink by RDMA", write)
		do(rdma, "source by RDMA", read)
		do(session.Config{}, "echo", func(c *session.Conn) error {
			b := make([]byte, 1)
			if _, err := c.Write(b); err != nil {
				return err
			}
			_, err := io.ReadFull(c, b)
			return err
		})
		dialed := make(chan error)
		go func() {
			_, err := s.Dial(context.Background(), netip.AddrPort{}, q.addr)
			dialed <- err
		}()
		time.Sleep(time.Duration(r.IntN(30_000)) * time.Microsecond) // another moment every time
		killed := time.Now()
		p.kill()
		for range conns {
			f := <-failed
			require.True(t, f.err == io.EOF || errors.Is(f.err, syscall.ECONNRESET) || errors.Is(f.err, syscall.EPIPE),
				"%s: %v", f.what, f.err)
			took := f.at.Sub(killed)
			if worst = max(worst, took); took > 100*time.Millisecond {
				late++
			}
		}
		q.kill()
		err := <-dialed
		require.Error(t, err)
		require.NotErrorIs(t, err, syscall.ECONNRESET) // TCP has to be tried, and knows better
		for _, c := range conns {
			c.Close()
		}
	}
	t.Logf("%d kills, noticed within %v; %d of %d calls took longer than 100 ms", rounds, worst, late, 7*rounds)
	after := left(t, s)
	for deadline := time.Now().Add(10 * time.Second); before.fewer(after) && time.Now().Before(deadline); {
		after = left(t, s)
	}
	require.False(t, before.fewer(after), "%+v before, %+v after", before, after)
	// The next start works at once, and the Accept still serves.
	other := openSAN(t, Config{Space: space(t)})
	q := process{addr: l.Addr()}
	c := q.dial(t, other)
	_, err = c.Write([]byte("x"))
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, c.Close())
	l.Close()
	<-served
}

// leftovers is what a dead peer might leave behind.
type leftovers struct {
	files, maps, goroutines, links, flows int
	memory                                int64
}

// fewer reports whether there was less of anything than in o.
func (b leftovers) fewer(o leftovers) bool {
	return b.files < o.files || b.maps < o.maps || b.goroutines < o.goroutines || b.links < o.links || b.flows < o.flows || b.memory < o.memory
}

// left counts once nothing has changed for a moment, as what ended may still be on its way out.
func left(t testing.TB, s *san) (x leftovers) {
	count := func() (x leftovers) {
		maps, err := os.ReadFile("/proc/self/maps")
		require.NoError(t, err)
		s.Node.mu.Lock()
		defer s.Node.mu.Unlock()
		return leftovers{
			files: openFiles(t), maps: strings.Count(string(maps), "memfd:"), goroutines: runtime.NumGoroutine(),
			links: len(s.links) + len(s.out), flows: len(s.flows[0]) + len(s.flows[1]), memory: s.memory.Load(),
		}
	}
	require.Eventually(t, func() bool { x = count(); return x.links == 0 }, 10*time.Second, time.Millisecond)
	for same := 0; same < 20; same++ {
		time.Sleep(time.Millisecond)
		if y := count(); y != x {
			x, same = y, 0
		}
	}
	return x
}

// TestKilledTransfers kills a peer in the middle of RDMA operations: all complete or are aborted, and the memory is ours again.
func TestKilledTransfers(t *testing.T) {
	rounds := 10
	if raced || testing.Short() {
		rounds = 3
	}
	s := openSAN(t, Config{Space: space(t)})
	r := rand.New(rand.NewPCG(6, uint64(time.Now().UnixNano())))
	for range rounds {
		p := start(t, "exposing", space(t))
		ep, err := s.Dial(context.Background(), netip.AddrPort{}, p.addr)
		require.NoError(t, err)
		e := newEnd(t, ep)
		m := e.receives(1, 64)
		e.say("descriptor, please")
		require.Equal(t, provider.OpRecv, e.next().Op)
		var d provider.Descriptor
		copy(d[:], m.Bytes)
		var wg sync.WaitGroup
		last := 1 + r.IntN(300) // the kill comes during the transfers after this one
		local, err := e.Register(make([]byte, maxRDMA))
		require.NoError(t, err)
		done, aborted, posted := 0, 0, 0
		reader := ep.(provider.RDMAReader)
		for over := false; !over; {
			for posted-done-aborted < maxRDMAs {
				op := provider.RDMA{Local: local.Segment(0, maxRDMA), Remote: d}
				if posted%2 == 0 {
					err = reader.PostRead(op)
				} else {
					err = e.PostWrite(op)
				}
				if err != nil {
					require.Equal(t, provider.StatusDisconnected, provider.StatusOf(err))
					break
				}
				posted++
			}
			switch c := e.next(); {
			case c.Op == provider.OpDisconnect:
				over = true
			case c.Status == provider.StatusOK:
				if done++; done == last {
					wg.Go(p.kill)
				}
			default:
				require.Equal(t, provider.StatusAborted, c.Status)
				aborted++
			}
		}
		require.Equal(t, posted, done+aborted)
		require.NoError(t, e.Deregister(local.Handle), "the memory is still in use")
		require.NoError(t, e.Deregister(m.Handle))
		e.Close()
		wg.Wait()
		t.Logf("%d transfers, %d aborted", done, aborted)
	}
	require.Eventually(t, func() bool { return idle(s) }, 5*time.Second, time.Millisecond, "something is left of the dead")
}

// exposing has memory that its peers may read and write.
func exposing(s *san, l provider.Listener) error {
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
	r, err := e.Expose(make([]byte, maxRDMA), provider.RightRead|provider.RightWrite)
	if err != nil {
		return err
	}
	e.next()
	e.PostSend(provider.Send{Inline: [2][]byte{r.Descriptor[:]}, Solicited: true})
	for e.next().Op != provider.OpDisconnect {
	}
	return net.ErrClosed
}
