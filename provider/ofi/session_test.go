//go:build ofi && cgo && linux

package ofi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"

	"sansock/provider"
	"sansock/session"
)

// sessions returns both ends of a session over the fabric under test.
func sessions(t testing.TB, p *Provider, cfg session.Config) (dialer, listener *session.Conn) {
	t.Helper()
	dialer, listener, err := negotiated(p, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		dialer.Close()
		listener.Close()
	})
	return dialer, listener
}

func negotiated(p provider.Provider, cfg session.Config) (dialer, listener *session.Conn, err error) {
	l, err := p.Listen(testAddr, 4)
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cfg.Timeout = 20 * time.Second
	type result struct {
		c   *session.Conn
		err error
	}
	got := make(chan result, 1)
	go func() {
		r, err := l.Accept()
		if err != nil {
			got <- result{nil, err}
			return
		}
		ep, err := r.Accept(ctx)
		if err != nil {
			got <- result{nil, err}
			return
		}
		c, err := session.Negotiate(ctx, ep, session.Listener, cfg)
		got <- result{c, err}
	}()
	ep, err := p.Dial(ctx, netip.AddrPort{}, l.Addr())
	if err != nil {
		return nil, nil, err
	}
	if dialer, err = session.Negotiate(ctx, ep, session.Dialer, cfg); err != nil {
		return nil, nil, err
	}
	r := <-got
	if r.err != nil {
		dialer.Close()
		return nil, nil, r.err
	}
	return dialer, r.c, nil
}

// conn makes a net.Conn of a session, with the errors that nettest wants.
type conn struct{ *session.Conn }

func (c conn) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(c.Conn.LocalAddr()) }
func (c conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.Conn.RemoteAddr()) }

func TestSessionIsConn(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		p, err := Open(Config{Fabric: testFabric})
		if err != nil {
			return nil, nil, nil, err
		}
		a, b, err := negotiated(p.(*Provider), session.Config{})
		if err != nil {
			p.Close()
			return nil, nil, nil, err
		}
		return conn{a}, conn{b}, func() {
			a.Close()
			b.Close()
			p.Close()
		}, nil
	})
}

// TestSessionStreams moves much data both ways at once, in writes of all sizes, by messages and by RDMA.
func TestSessionStreams(t *testing.T) {
	total := 10 << 20
	if testFabric != fabricTCP {
		total = 2 << 20
	}
	for name, threshold := range map[string]int{"default": 0, "messages": -1, "RDMA": 8 << 10} {
		t.Run(name, func(t *testing.T) {
			p := opened(t)
			a, b := sessions(t, p, session.Config{Threshold: threshold})
			want := [2][]byte{make([]byte, total), make([]byte, total)}
			errs := make(chan error, 4)
			for i, c := range [2]*session.Conn{a, b} {
				rng := rand.New(rand.NewPCG(1, uint64(i)))
				for k := range want[i] {
					want[i][k] = byte(rng.Uint32())
				}
				go func() {
					for rest := want[i]; len(rest) > 0; {
						n := min(len(rest), 1+rng.IntN(1<<rng.IntN(21)))
						if _, err := c.Write(rest[:n]); err != nil {
							errs <- err
							return
						}
						rest = rest[n:]
					}
					errs <- c.CloseWrite()
				}()
			}
			for i, c := range [2]*session.Conn{b, a} {
				go func() {
					got, err := io.ReadAll(c)
					if err == nil && !bytes.Equal(got, want[i]) {
						err = errors.New("other data than was written")
					}
					errs <- err
				}()
			}
			for range 4 {
				require.NoError(t, <-errs)
			}
			if s := a.Stats(); threshold >= 0 {
				require.NotZero(t, s.BytesRDMAOut, "%+v", s)
			}
		})
	}
}

func TestSessionEnds(t *testing.T) {
	p := opened(t)
	t.Run("close", func(t *testing.T) {
		a, b := sessions(t, p, session.Config{})
		_, err := a.Write([]byte("last words"))
		require.NoError(t, err)
		require.NoError(t, a.Close())
		got, err := io.ReadAll(b)
		require.NoError(t, err)
		require.Equal(t, "last words", string(got))
	})
	t.Run("abort", func(t *testing.T) {
		a, b := sessions(t, p, session.Config{})
		require.NoError(t, a.SetLinger(0))
		require.NoError(t, a.Close())
		_, err := b.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
	})
	t.Run("in the middle of a transfer", func(t *testing.T) {
		a, b := sessions(t, p, session.Config{ReadBuffer: 1})
		wrote := make(chan error, 1)
		go func() {
			_, err := a.Write(make([]byte, 8<<20))
			wrote <- err
		}()
		_, err := io.ReadFull(b, make([]byte, 100<<10))
		require.NoError(t, err)
		require.NoError(t, b.Close())
		require.Error(t, <-wrote)
	})
	t.Run("write deadline", func(t *testing.T) {
		a, b := sessions(t, p, session.Config{ReadBuffer: 1})
		require.NoError(t, a.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
		n, err := a.Write(make([]byte, 8<<20))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, a.SetWriteDeadline(time.Time{}))
		require.NoError(t, a.CloseWrite())
		got, err := io.ReadAll(b)
		require.NoError(t, err)
		require.Len(t, got, n)
	})
}

// TestNothingLeft makes and ends connections, and looks for descriptors and goroutines that stay.
func TestNothingLeft(t *testing.T) {
	p := opened(t)
	round := func() {
		a, b, err := negotiated(p, session.Config{})
		require.NoError(t, err)
		_, err = a.Write(make([]byte, 300<<10))
		require.NoError(t, err)
		_, err = io.ReadFull(b, make([]byte, 300<<10))
		require.NoError(t, err)
		a.Close()
		b.Close()
	}
	descriptors := func() int {
		fds, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(fds)
	}
	round()
	fds, goroutines := descriptors(), runtime.NumGoroutine()
	for range 8 {
		round()
	}
	// Some end in the background.
	for limit := time.Now().Add(20 * time.Second); descriptors() > fds+2 || runtime.NumGoroutine() > goroutines+2; {
		require.True(t, time.Now().Before(limit), "%d descriptors and %d goroutines, before it were %d and %d",
			descriptors(), runtime.NumGoroutine(), fds, goroutines)
		time.Sleep(10 * time.Millisecond)
	}
}

// TestIdle looks at the processor time of connections that have nothing to do, and of one whose peer sends more than there
// are receives for.
func TestIdle(t *testing.T) {
	p := opened(t)
	for range 8 {
		sessions(t, p, session.Config{})
	}
	a, b := connected(t, p)
	in, err := b.Allocate(16)
	require.NoError(t, err)
	require.NoError(t, b.PostRecv(provider.Recv{Buffer: in.Segment(0, 16)}))
	for range 4 {
		require.NoError(t, a.PostSend(provider.Send{Inline: [2][]byte{{1}}}))
	}
	next(t, b)
	busy := func() time.Duration {
		var u syscall.Rusage
		require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	// How long this takes does not matter, only how much of it is spent: a loop that never sleeps would spend all.
	start, used := time.Now(), busy()
	time.Sleep(500 * time.Millisecond)
	spent, took := busy()-used, time.Since(start)
	t.Logf("%v of %v", spent, took)
	require.Less(t, spent, took/4)
	// What waited is there for the receives that come.
	for range 3 {
		require.NoError(t, b.PostRecv(provider.Recv{Buffer: in.Segment(0, 16)}))
		require.Equal(t, provider.Completion{Op: provider.OpRecv, Len: 1}, next(t, b))
	}
	require.NoError(t, b.Close())
	require.NoError(t, b.Deregister(in.Handle))
}
