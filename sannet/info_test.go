package sannet_test

import (
	"context"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/provider"
	"sansock/sannet"
	sanswitch "sansock/switch"
)

func TestInfoOf(t *testing.T) {
	t.Run("san", func(t *testing.T) {
		s := &script{T: t, path: sanPath(t), names: new(names)}
		c, sv := s.pair()
		for _, end := range []net.Conn{c, sv} {
			info, ok := sannet.InfoOf(end)
			require.True(t, ok)
			assert.Equal(t, sanswitch.PathSAN, info.Path)
			assert.Equal(t, "emu", info.Provider)
			assert.Equal(t, sanswitch.ReasonSAN, info.Reason)
			assert.NoError(t, info.Err)
			assert.Equal(t, "san via emu", info.String())
		}
	})
	t.Run("fallback", func(t *testing.T) {
		s := &script{T: t, path: fallbackPath(t), names: new(names)}
		c, sv := s.pair()
		info, ok := sannet.InfoOf(c)
		require.True(t, ok)
		assert.Equal(t, sanswitch.PathTCP, info.Path)
		assert.Equal(t, sanswitch.ReasonNoListener, info.Reason)
		assert.Contains(t, info.String(), "tcp: "+sanswitch.ReasonNoListener.String())
		info, ok = sannet.InfoOf(sv)
		require.True(t, ok)
		assert.Equal(t, "tcp: "+sanswitch.ReasonDisabled.String(), info.String())
	})
	t.Run("plain client", func(t *testing.T) {
		l, err := sanPath(t).listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		defer c.Close()
		sv, err := l.Accept()
		require.NoError(t, err)
		defer sv.Close()
		info, ok := sannet.InfoOf(sv)
		require.True(t, ok)
		assert.Equal(t, "tcp: "+sanswitch.ReasonPlainClient.String(), info.String())
	})
	t.Run("wrapped", func(t *testing.T) {
		s := &script{T: t, path: sanPath(t), names: new(names)}
		c, _ := s.pair()
		_, ok := sannet.InfoOf(wrapped{wrapped{c}})
		assert.True(t, ok)
	})
	t.Run("unknown", func(t *testing.T) {
		s := &script{T: t, path: tcpPath(t), names: new(names)}
		c, _ := s.pair()
		_, ok := sannet.InfoOf(c)
		assert.False(t, ok)
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		_, ok = sannet.InfoOf(a)
		assert.False(t, ok)
		_, ok = sannet.InfoOf(circle{})
		assert.False(t, ok)
	})
}

type wrapped struct{ net.Conn }

func (w wrapped) NetConn() net.Conn { return w.Conn }

type circle struct{ net.Conn }

func (c circle) NetConn() net.Conn { return c }

// TestInfoKeepsNothingAlive: what is remembered of TCP connections goes when they go.
func TestInfoKeepsNothingAlive(t *testing.T) {
	p := fallbackPath(t)
	before := sannet.RoutesKept()
	kept := make([]net.Conn, 0, 10)
	func() {
		l, err := p.listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		for i := range 100 {
			c, err := p.dial(t.Context(), "tcp", l.Addr().String())
			require.NoError(t, err)
			sv, err := l.Accept()
			require.NoError(t, err)
			sv.Close()
			if c.Close(); i%10 == 0 {
				kept = append(kept, c)
			}
		}
	}()
	require.GreaterOrEqual(t, sannet.RoutesKept()-before, len(kept))
	require.Eventually(t, func() bool {
		runtime.GC()
		return sannet.RoutesKept()-before <= len(kept)
	}, stuck, time.Millisecond)
	for _, c := range kept {
		_, ok := sannet.InfoOf(c)
		assert.True(t, ok)
	}
	runtime.KeepAlive(kept)
}

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

// TestDialCanceled: a dial that ends early leaves nothing behind.
func TestDialCanceled(t *testing.T) {
	onPaths(t, func(t *testing.T, p path) {
		l, err := p.listen("tcp", "127.0.0.1:0")
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
		var connected, failed int
		for i := range 1000 {
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
			c, err := p.dial(ctx, "tcp", l.Addr().String())
			if err == nil {
				connected++
				c.Close()
			} else {
				failed++
				assert.ErrorContains(t, err, "operation was canceled")
			}
			cancel()
		}
		assert.GreaterOrEqual(t, failed, 500)
		t.Logf("%d connected, %d canceled", connected, failed)
		l.Close()
		<-accepted
	})
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
