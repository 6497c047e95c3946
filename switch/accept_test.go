package sanswitch

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	tool "sansock/internal/faulty"
	"sansock/provider"
	"sansock/session"
)

// Plain TCP clients are served as by net, whoever speaks first.
func TestPlainClients(t *testing.T) {
	s := newSwitch(t, Config{}, newFaulty(t, emu.Config{}))
	l := listen(t, s, "tcp", "127.0.0.1:0")
	connect := func() (net.Conn, Result) {
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
		r := accept(t, l)
		assertTCP(t, r, ReasonPlainClient)
		assert.NoError(t, r.Route.Err)
		assert.Equal(t, c.LocalAddr().String(), r.Conn.RemoteAddr().String())
		return c, r
	}

	silent, _ := connect()
	defer silent.Close()

	c, r := connect()
	_, err := io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
	require.NoError(t, err)
	line, err := bufio.NewReader(r.Conn).ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "GET / HTTP/1.0\r\n", line)

	c, r = connect()
	_, err = io.WriteString(r.Conn, "220 server speaks first\r\n")
	require.NoError(t, err)
	line, err = bufio.NewReader(c).ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "220 server speaks first\r\n", line)

	_, err = silent.Write([]byte("x"))
	assert.NoError(t, err, "still there")
}

// A server over the SAN may speak first too.
func TestServerSpeaksFirst(t *testing.T) {
	s := newSwitch(t, Config{HeadStart: patient}, newFaulty(t, emu.Config{}))
	l := listen(t, s, "tcp", "127.0.0.1:0")
	r := dial(t, s, "tcp", l.Addr().String())
	a := accept(t, l)
	assertSAN(t, a)
	_, err := io.WriteString(a.Session, "220 server speaks first\r\n")
	require.NoError(t, err)
	line, err := bufio.NewReader(r.Session).ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "220 server speaks first\r\n", line)
}

// Close, deadlines and their errors, beside those of a listener of net.
func TestListenerErrors(t *testing.T) {
	f := newFaulty(t, emu.Config{})
	s := newSwitch(t, Config{}, f)
	for _, network := range []string{"tcp", "tcp4", "san"} {
		t.Run(network, func(t *testing.T) {
			tcp, _ := tcpNetwork(network)
			ln, err := net.Listen(tcp, "127.0.0.1:0")
			require.NoError(t, err)
			defer ln.Close()
			l := listen(t, s, network, "127.0.0.1:0")
			same := func(want, err error) {
				t.Helper()
				e := opErrorOf(t, want)
				e.Net, e.Addr = network, l.Addr()
				assertSameError(t, want, err)
			}
			for range 2 {
				past := time.Now().Add(-time.Second)
				require.NoError(t, ln.(*net.TCPListener).SetDeadline(past))
				require.NoError(t, l.SetDeadline(past))
				_, want := ln.Accept()
				_, err = l.Accept()
				same(want, err)
				assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
			}
			require.NoError(t, l.SetDeadline(time.Now().Add(5*time.Millisecond)))
			_, err = l.Accept()
			assert.ErrorIs(t, err, os.ErrDeadlineExceeded)

			require.NoError(t, ln.Close())
			require.NoError(t, l.Close())
			_, want := ln.Accept()
			_, err = l.Accept()
			same(want, err)
			assert.ErrorIs(t, err, net.ErrClosed)
			same(ln.Close(), l.Close())
			assert.Equal(t, ln.(*net.TCPListener).SetDeadline(time.Time{}), l.SetDeadline(time.Time{}))
		})
	}
}

// Accept that waits is woken, by Close and by a deadline that moves.
func TestAcceptIsWoken(t *testing.T) {
	s := newSwitch(t, Config{}, newFaulty(t, emu.Config{}))
	for _, network := range []string{"tcp", "san"} {
		l := listen(t, s, network, "127.0.0.1:0")
		errs := make(chan error)
		wait := func() {
			_, err := l.Accept()
			errs <- err
		}
		require.NoError(t, l.SetDeadline(time.Now().Add(time.Hour)))
		go wait()
		go wait()
		require.NoError(t, l.SetDeadline(time.Now().Add(time.Millisecond)))
		for range 2 {
			assert.ErrorIs(t, <-errs, os.ErrDeadlineExceeded)
		}
		require.NoError(t, l.SetDeadline(time.Time{}))
		go wait()
		go wait()
		require.NoError(t, l.Close())
		for range 2 {
			err := <-errs
			assert.ErrorIs(t, err, net.ErrClosed)
			assert.True(t, strings.HasSuffix(err.Error(), ": use of closed network connection"), err)
		}
	}
}

// Connections that nobody has accepted end with the listener, on both paths, those being set up too.
func TestCloseEndsUnaccepted(t *testing.T) {
	f := newFaulty(t, emu.Config{})
	s := newSwitch(t, Config{HeadStart: patient, Session: session.Config{Timeout: time.Minute}}, f)
	for _, network := range []string{"tcp", "san"} {
		l := listen(t, s, network, "127.0.0.1:0")
		var peers []conn
		for range 3 {
			peers = append(peers, dial(t, s, network, l.Addr().String()).Session)
			if network == "tcp" {
				c, err := net.Dial("tcp", l.Addr().String())
				require.NoError(t, err)
				defer c.Close()
				_, err = c.Write([]byte("unread"))
				require.NoError(t, err)
				peers = append(peers, c)
			}
		}
		half, err := f.Provider.Dial(t.Context(), netip.AddrPort{}, l.Addr().(*net.TCPAddr).AddrPort())
		require.NoError(t, err)
		require.NoError(t, l.Close())
		for _, p := range peers {
			require.NoError(t, p.SetDeadline(time.Now().Add(20*time.Second)))
			_, err := p.Read(make([]byte, 1))
			assert.True(t, err == io.EOF || errors.Is(err, syscall.ECONNRESET), "%v", err)
			p.Close()
		}
		var c [1]provider.Completion
		assert.Eventually(t, func() bool { return half.Poll(c[:]) == 1 && c[0].Op == provider.OpDisconnect },
			10*time.Second, time.Millisecond)
		half.Close()
		f.assertClean(t)
	}
}

// Beyond the backlog, dialers wait for room, as with TCP, until their time is over. TCP, which
// has a backlog of its own, races that.
func TestBacklog(t *testing.T) {
	f := newFaulty(t, emu.Config{})
	s := newSwitch(t, Config{HeadStart: patient}, f)
	s.waiting = 3
	l := listen(t, s, "tcp", "127.0.0.1:0")
	full := func() {
		for range 3 {
			assertSAN(t, dial(t, s, "san", l.Addr().String()))
		}
	}
	full()
	_, err := s.Dial(t.Context(), &net.Dialer{Timeout: 20 * time.Millisecond}, "san", l.Addr().String())
	assert.Equal(t, "dial san "+l.Addr().String()+": i/o timeout", err.Error())
	assert.True(t, opErrorOf(t, err).Timeout())
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, cancel)
	_, err = s.Dial(ctx, new(net.Dialer), "san", l.Addr().String())
	assert.Equal(t, "dial san "+l.Addr().String()+": operation was canceled", err.Error())

	// Room is found, over the SAN, by all who wait, one after the other.
	for range 3 {
		for _, network := range []string{"san", "tcp"} {
			dialed := make(chan Result)
			go func() {
				r, err := s.Dial(t.Context(), new(net.Dialer), network, l.Addr().String())
				assert.NoError(t, err)
				dialed <- r
			}()
			select {
			case r := <-dialed:
				t.Fatalf("no room, but: %v", r.Route)
			case <-time.After(5 * time.Millisecond):
			}
			accept(t, l)
			r := <-dialed
			assertSAN(t, r)
			t.Cleanup(func() { r.Session.Close() })
		}
	}

	// Who waits for long is over TCP.
	s.lead = time.Millisecond
	for range lateLimit + 1 {
		r := dial(t, s, "tcp", l.Addr().String())
		assertTCP(t, r, ReasonPeerDeclined)
		assert.Equal(t, ReasonBusy, r.Route.Peer)
	}

	// The end of the listener ends the wait.
	s.lead = patient
	time.AfterFunc(5*time.Millisecond, func() { l.Close() })
	_, err = s.Dial(t.Context(), new(net.Dialer), "san", l.Addr().String())
	assert.ErrorIs(t, err, syscall.ECONNREFUSED)
}

// Where nobody accepts for as long as TCP would try, the error is TCP's.
func TestBacklogTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serving("a", "10.1.0.5/16")
		full := func(context.Context, netip.AddrPort, netip.AddrPort) (provider.Endpoint, error) {
			return nil, &provider.Error{Provider: "a", Op: "dial", Status: provider.StatusRefused, Reason: rejectFull.bytes()}
		}
		f := tool.New(p)
		f.On.Dial = full
		s := New(Config{Providers: providers(f)})
		began := time.Now()
		_, err := s.Dial(t.Context(), new(net.Dialer), "san", "10.1.1.1:80")
		assert.ErrorIs(t, err, syscall.ETIMEDOUT)
		assert.Contains(t, err.Error(), "dial san 10.1.1.1:80: connect: connection timed out (")
		assert.InDelta(t, fullTimeout, time.Since(began), float64(2*maxFullPause))
	})
}

// Peers that start and do not go on keep nobody from TCP.
func TestHalfOpenBound(t *testing.T) {
	f := newFaulty(t, emu.Config{})
	s := newSwitch(t, Config{HeadStart: patient, Session: session.Config{Timeout: time.Minute}}, f)
	s.halfOpen = 2
	l := listen(t, s, "tcp", "127.0.0.1:0")
	var eps []provider.Endpoint
	for range 2 {
		ep, err := f.Provider.Dial(t.Context(), netip.AddrPort{}, l.Addr().(*net.TCPAddr).AddrPort())
		require.NoError(t, err)
		defer ep.Close()
		eps = append(eps, ep)
	}
	for range 2 { // it is not remembered either
		r := dial(t, s, "tcp", l.Addr().String())
		assertTCP(t, r, ReasonPeerDeclined)
		assert.Equal(t, ReasonBusy, r.Route.Peer)
		echo(t, r, accept(t, l))
	}
	eps[0].Close()
	assert.Eventually(t, func() bool {
		r, err := s.Dial(t.Context(), new(net.Dialer), "san", l.Addr().String())
		if err == nil {
			r.Session.Close()
		}
		return err == nil
	}, 10*time.Second, time.Millisecond)
}

// parked is a SAN listener to which nobody comes, unless it fails.
type parked struct {
	err    error
	calls  atomic.Int32
	once   sync.Once
	closed chan struct{}
}

func (p *parked) Accept() (provider.Request, error) {
	p.calls.Add(1)
	if p.err != nil {
		return nil, p.err
	}
	<-p.closed
	return nil, net.ErrClosed
}

func (p *parked) Addr() netip.AddrPort { return dst1 }

func (p *parked) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// scripted is a TCP listener with connections and errors to hand out.
type scripted struct {
	parked
	script []error // nil: a connection
	conns  []*noted
}

// noted is a connection that knows whether it was closed.
type noted struct {
	net.Conn
	closed bool
}

func (n *noted) Close() error {
	n.closed = true
	return nil
}

func (s *scripted) Addr() net.Addr { return net.TCPAddrFromAddrPort(dst1) }

func (s *scripted) Accept() (net.Conn, error) {
	n := int(s.calls.Add(1)) - 1
	if n >= len(s.script) {
		<-s.closed
		return nil, net.ErrClosed
	}
	if s.script[n] != nil {
		return nil, s.script[n]
	}
	c := new(noted)
	s.conns = append(s.conns, c)
	return c, nil
}

// One connection at most is taken from the TCP listener ahead of Accept, however many there are, and nothing after an error,
// which may be over when Accept is called again.
func TestTCPIsTakenOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
		ln := &scripted{parked: parked{closed: make(chan struct{})}, script: []error{full, full, nil, full, nil, nil}}
		san := &parked{closed: make(chan struct{})}
		l := New(Config{}).newListener("tcp", "tcp", ln, ln.Addr(), []sanListener{{Listener: san, name: "emu"}}, Route{Path: PathTCP})
		for i, want := range ln.script[:5] {
			time.Sleep(time.Hour)
			synctest.Wait()
			ahead := 1
			if i > 0 && ln.script[i-1] != nil {
				ahead = 0
			}
			assert.EqualValues(t, i+ahead, ln.calls.Load())
			r, err := l.Accept()
			assert.Equal(t, want != nil, err != nil)
			if want != nil {
				assert.Equal(t, want, err)
				assert.Equal(t, Result{}, r)
			} else {
				assert.Equal(t, Route{Path: PathTCP}, r.Route)
			}
		}
		synctest.Wait()
		require.Len(t, ln.conns, 3)
		assert.NoError(t, l.Close())
		synctest.Wait()
		assert.Equal(t, []bool{false, false, true}, []bool{ln.conns[0].closed, ln.conns[1].closed, ln.conns[2].closed})
		assert.EqualValues(t, 6, ln.calls.Load())
	})
}

// A SAN listener that goes on failing is given up, after pauses, and TCP goes on without it.
func TestFailingSANListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := &scripted{parked: parked{closed: make(chan struct{})}, script: []error{nil}}
		san := &parked{closed: make(chan struct{}), err: provider.StatusLink}
		l := New(Config{}).newListener("tcp", "tcp", ln, ln.Addr(), []sanListener{{Listener: san, name: "emu"}}, Route{Path: PathTCP})
		synctest.Wait()
		assert.EqualValues(t, 1, san.calls.Load())
		time.Sleep(minPause)
		synctest.Wait()
		assert.EqualValues(t, 2, san.calls.Load())
		<-san.closed
		assert.EqualValues(t, maxFailures, san.calls.Load())
		_, err := l.Accept()
		assert.NoError(t, err)
		assert.NoError(t, l.Close())
		synctest.Wait()
	})
	// Without TCP, Accept ends.
	synctest.Test(t, func(t *testing.T) {
		san := &parked{closed: make(chan struct{}), err: provider.StatusLink}
		l := New(Config{}).newListener("san", "tcp", nil, net.TCPAddrFromAddrPort(dst1), []sanListener{{Listener: san, name: "emu"}}, Route{})
		_, err := l.Accept()
		assert.ErrorIs(t, err, net.ErrClosed)
	})
	// A failure now and then does not count.
	f := newFaulty(t, emu.Config{})
	var failures int
	f.acceptRequest = func() error {
		if failures++; failures%3 != 0 {
			return provider.StatusNoMemory
		}
		return nil
	}
	s := newSwitch(t, Config{HeadStart: patient}, f)
	l := listen(t, s, "tcp", "127.0.0.1:0")
	for range maxFailures {
		r := dial(t, s, "tcp", l.Addr().String())
		assertSAN(t, r)
		echo(t, r, accept(t, l))
	}
}

// After the switch is closed, listeners go on without SANs, if they can.
func TestSwitchClose(t *testing.T) {
	f := newFaulty(t, emu.Config{})
	s := newSwitch(t, Config{HeadStart: patient}, f)
	both, only := listen(t, s, "tcp", "127.0.0.1:0"), listen(t, s, "san", "127.0.0.1:0")
	r := dial(t, s, "tcp", both.Addr().String())
	a := accept(t, both)
	require.NoError(t, s.Close())
	echo(t, r, a)
	_, err := only.Accept()
	assert.ErrorIs(t, err, net.ErrClosed)
	r = dial(t, s, "tcp", both.Addr().String())
	assertTCP(t, r, ReasonDisabled)
	a = accept(t, both)
	assertTCP(t, a, ReasonPlainClient)
	echo(t, r, a)
	_, err = s.Dial(context.Background(), new(net.Dialer), "san", both.Addr().String())
	assert.ErrorIs(t, err, errNotInUse)
}

// A peer that starts and does not go on has its time, and not more.
func TestSilentDialerExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := emu.New(emu.Config{Fabric: emu.NewFabric()})
		require.NoError(t, err)
		s := newSwitch(t, Config{}, p)
		l := listen(t, s, "san", "127.0.0.1:0")
		var eps []provider.Endpoint
		for range 3 {
			ep, err := p.Dial(t.Context(), netip.AddrPort{}, l.Addr().(*net.TCPAddr).AddrPort())
			require.NoError(t, err)
			eps = append(eps, ep)
			time.Sleep(session.DefaultTimeout / 4)
		}
		open := func() int {
			synctest.Wait()
			l.queue.mu.Lock()
			defer l.queue.mu.Unlock()
			return l.queue.halfOpen
		}
		var n []int
		for range 5 {
			n = append(n, open())
			time.Sleep(session.DefaultTimeout / 4)
		}
		assert.Equal(t, []int{3, 2, 1, 0, 0}, n)
		var c [1]provider.Completion
		for _, ep := range eps {
			require.Equal(t, 1, ep.Poll(c[:]))
			assert.Equal(t, provider.OpDisconnect, c[0].Op)
			ep.Close()
		}
		l.Close()
		s.Close()
		synctest.Wait()
	})
}
