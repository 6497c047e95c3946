package sannet_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/provider"
	"sansock/sannet"
	sanswitch "sansock/switch"
)

// TestSANOnly: networks that insist on the SAN.
func TestSANOnly(t *testing.T) {
	san, none := newSwitch(t, true), newSwitch(t, false)
	listen := func(sw *sanswitch.Switch, network, address string) (net.Listener, error) {
		return (&sannet.ListenConfig{Switch: sw}).Listen(t.Context(), network, address)
	}
	dial := func(sw *sanswitch.Switch, network, address string) (net.Conn, error) {
		return (&sannet.Dialer{Switch: sw}).DialContext(t.Context(), network, address)
	}
	l, err := listen(san, "san", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	for _, network := range []string{"san", "san4", "tcp"} {
		c, err := dial(san, network, l.Addr().String())
		require.NoError(t, err)
		defer c.Close()
		sv, err := l.Accept()
		require.NoError(t, err)
		defer sv.Close()
		require.IsType(t, (*sannet.Conn)(nil), c)
		require.IsType(t, (*sannet.Conn)(nil), sv)
		assert.Equal(t, c.LocalAddr().String(), sv.RemoteAddr().String())
	}
	// Plain TCP does not reach it.
	_, err = net.Dial("tcp", l.Addr().String())
	assert.Error(t, err)

	tl, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer tl.Close()
	for _, sw := range []*sanswitch.Switch{san, none} {
		c, err := dial(sw, "san", tl.Addr().String())
		assert.Nil(t, c)
		var oe *net.OpError
		require.ErrorAs(t, err, &oe)
		assert.Equal(t, "dial", oe.Op)
		assert.Equal(t, "san", oe.Net)
	}
	_, err = listen(none, "san", "127.0.0.1:0")
	assert.Error(t, err)
	_, err = dial(san, "san6", l.Addr().String())
	assert.Error(t, err)
}

// TestDialCanceled: a dial that ends early leaves nothing behind: no goroutine, which the end of the tests checks, no
// descriptor, and none of the few registrations that there are.
func TestDialCanceled(t *testing.T) {
	p, err := emu.New(emu.Config{Memory: emu.Memory{MaxRegistrations: 100}})
	require.NoError(t, err)
	sw := sanswitch.New(sanswitch.Config{Providers: []provider.Provider{p}})
	defer sw.Close()
	l, err := listenWith(sw)("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	dial := dialWith(sw)
	before := descriptors()
	var connected, failed int
	for i := range 2000 {
		ctx, cancel := context.WithCancel(t.Context())
		if i%2 == 0 {
			cancel()
		} else {
			// Some time in the middle.
			go func() {
				for range i % 50 {
					runtime.Gosched()
				}
				cancel()
			}()
		}
		c, err := dial(ctx, sannet.Dialer{}, "tcp", l.Addr().String())
		if err == nil {
			connected++
			c.Close()
		} else {
			failed++
			require.ErrorContains(t, err, "operation was canceled")
		}
		cancel()
	}
	assert.GreaterOrEqual(t, failed, 1000)
	t.Logf("%d connected, %d canceled", connected, failed)
	assert.Eventually(t, func() bool { return descriptors() <= before }, stuck, time.Millisecond)
	assert.Eventually(t, func() bool {
		c, err := dial(t.Context(), sannet.Dialer{}, "san", l.Addr().String())
		if err != nil {
			return false
		}
		return c.Close() == nil
	}, stuck, time.Millisecond)
	l.Close()
	<-accepted
}

// descriptors returns how many the process has, 0 where that is not known.
func descriptors() int {
	d, _ := os.ReadDir("/proc/self/fd")
	return len(d)
}

// TestAcceptFollowsDial: a Dial that succeeded has its connection at the listener.
func TestAcceptFollowsDial(t *testing.T) {
	p := sanPath(t)
	l, err := p.listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	for range 1000 {
		c, err := p.dial(t.Context(), "tcp", l.Addr().String())
		require.NoError(t, err)
		require.NoError(t, l.(*sannet.Listener).SetDeadline(time.Now().Add(stuck)))
		sv, err := l.Accept()
		require.NoError(t, err)
		require.Equal(t, c.LocalAddr().String(), sv.RemoteAddr().String())
		c.Close()
		sv.Close()
	}
}

// TestClosedSwitch: a closed switch goes on over TCP.
func TestClosedSwitch(t *testing.T) {
	p, err := emu.New(emu.Config{})
	require.NoError(t, err)
	sw := sanswitch.New(sanswitch.Config{Providers: []provider.Provider{p}})
	require.NoError(t, sw.Close())
	l, err := (&sannet.ListenConfig{Switch: sw}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	c, err := (&sannet.Dialer{Switch: sw}).Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	info, ok := sannet.InfoOf(c)
	assert.True(t, ok)
	assert.Equal(t, sanswitch.ReasonDisabled, info.Reason)
}

// TestManyConnections: many at a time over one listener, which come and go.
func TestManyConnections(t *testing.T) {
	onPaths(t, func(t *testing.T, p path) {
		l, err := p.listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		var servers, clients sync.WaitGroup
		servers.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				servers.Go(func() {
					defer c.Close()
					_, err := io.Copy(c, c)
					if !errors.Is(err, syscall.ECONNRESET) { // a SAN that lost its race on a busy host
						assert.NoError(t, err)
					}
				})
			}
		})
		for i := range 50 {
			clients.Go(func() {
				for j := range 5 {
					c, err := p.dial(t.Context(), "tcp", l.Addr().String())
					if !assert.NoError(t, err) {
						return
					}
					c.SetDeadline(time.Now().Add(stuck))
					sent := pattern(1 + i*j*997)
					go c.Write(sent)
					got := make([]byte, len(sent))
					_, err = io.ReadFull(c, got)
					assert.NoError(t, err)
					assert.True(t, bytes.Equal(sent, got))
					assert.NoError(t, c.(conn).CloseWrite())
					_, err = c.Read(got)
					assert.Equal(t, io.EOF, err)
					c.Close()
				}
			})
		}
		clients.Wait()
		l.Close()
		servers.Wait()
	})
}

// A listener that is forgotten does not listen for ever, as one of net's does not.
func TestForgottenListener(t *testing.T) {
	forget := func(t *testing.T, p path) {
		addr := func() string {
			l, err := p.listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			return l.Addr().String()
		}()
		for end := time.Now().Add(stuck); ; runtime.GC() {
			c, err := p.dial(context.Background(), "tcp", addr)
			if err != nil {
				break
			}
			c.Close()
			require.True(t, time.Now().Before(end), "it still listens")
		}
	}
	t.Run("tcp", func(t *testing.T) { forget(t, tcpPath(t)) })
	onPaths(t, forget)
}
