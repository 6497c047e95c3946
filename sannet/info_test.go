package sannet_test

import (
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	require.GreaterOrEqual(t, sannet.RoutesKept(), len(kept))
	require.Eventually(t, func() bool {
		runtime.GC()
		return sannet.RoutesKept() < 2*len(kept) // those of other tests too
	}, stuck, time.Millisecond)
	for _, c := range kept {
		_, ok := sannet.InfoOf(c)
		assert.True(t, ok)
	}
	runtime.KeepAlive(kept)
}
