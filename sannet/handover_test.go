package sannet_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/sannet"
	sanswitch "sansock/switch"
)

func TestHandover(t *testing.T) {
	sw := newSwitch(t, true)
	p := path{name: "san", listen: listenWith(sw), dialWith: dialWith(sw)}
	client, server, err := p.connect("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer client.Close()
	defer server.Close()
	ctx := context.Background()
	old := server.(*sannet.Conn)
	_, err = client.Write([]byte("unread"))
	require.NoError(t, err)
	state, err := old.Handover(ctx)
	require.NoError(t, err)

	_, err = old.Read(make([]byte, 1))
	assert.ErrorIs(t, err, net.ErrClosed)
	assert.ErrorIs(t, old.SetNoDelay(true), net.ErrClosed)
	_, err = old.Handover(ctx)
	assert.ErrorIs(t, err, net.ErrClosed)
	assert.EqualError(t, err, "handover tcp "+server.LocalAddr().String()+"->"+server.RemoteAddr().String()+
		": use of closed network connection")

	d := sannet.Dialer{Switch: sw}
	c, err := d.Resume(ctx, state)
	require.NoError(t, err)
	defer c.Close()
	assert.Equal(t, client.RemoteAddr(), c.LocalAddr())
	assert.Equal(t, client.LocalAddr(), c.RemoteAddr())
	info, ok := sannet.InfoOf(c)
	require.True(t, ok)
	was, _ := sannet.InfoOf(client)
	assert.Equal(t, was.String(), info.String())
	assert.Equal(t, sanswitch.PathSAN, info.Path)
	b := make([]byte, 6)
	_, err = io.ReadFull(c, b)
	require.NoError(t, err)
	assert.Equal(t, "unread", string(b))
	_, err = c.Write([]byte("answer"))
	require.NoError(t, err)
	_, err = io.ReadFull(client, b)
	require.NoError(t, err)
	assert.Equal(t, "answer", string(b))

	_, err = d.Resume(ctx, state)
	assert.ErrorIs(t, err, syscall.ECONNRESET, "once")
	assert.ErrorContains(t, err, "resume tcp "+server.LocalAddr().String()+"->"+server.RemoteAddr().String()+": connection reset by peer")
	var none *sannet.Conn
	_, err = none.Handover(ctx)
	assert.Equal(t, syscall.EINVAL, err)
	for n := range len(state) {
		_, err := d.Resume(ctx, state[:n])
		require.Error(t, err)
		require.NotErrorIs(t, err, syscall.ECONNRESET, "malformed")
	}
	// Where the provider is not in use.
	state, err = c.Handover(ctx)
	require.NoError(t, err)
	_, err = (&sannet.Dialer{Switch: newSwitch(t, false)}).Resume(ctx, state)
	require.Error(t, err)
	require.NotErrorIs(t, err, syscall.ECONNRESET)
	c, err = d.Resume(ctx, state)
	require.NoError(t, err, "it can be tried again")
	require.NoError(t, c.Close())
	_, err = client.Read(b)
	assert.Equal(t, io.EOF, err)
}

func FuzzHandover(f *testing.F) {
	f.Add([]byte{1, 3, 't', 'c', 'p', 3, 'e', 'm', 'u', 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	d := sannet.Dialer{Switch: sanswitch.New(sanswitch.Config{})}
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := d.Resume(context.Background(), b); err == nil {
			t.Fatal("without any SAN")
		}
	})
}

// A listener that drains gives out what has arrived, and another goes on at its address, on both paths.
func TestDrain(t *testing.T) {
	for _, san := range []bool{true, false} {
		sw := newSwitch(t, san)
		p := path{listen: listenWith(sw), dialWith: dialWith(sw)}
		l, err := p.listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		addr := l.Addr().String()
		old := l.(*sannet.Listener)
		f, err := old.TCPFile()
		require.NoError(t, err)
		const waiting = 5
		var clients []net.Conn
		dial := func() net.Conn {
			t.Helper()
			c, err := p.dial(context.Background(), "tcp", addr)
			require.NoError(t, err)
			clients = append(clients, c)
			_, err = c.Write([]byte{byte(len(clients))})
			require.NoError(t, err)
			return c
		}
		for range waiting {
			dial()
		}
		require.NoError(t, old.Drain())
		require.NoError(t, old.Drain(), "again")
		dial() // between the two: over TCP, or to whichever listens
		next, err := (&sannet.ListenConfig{Switch: sw}).FileListener(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		assert.Equal(t, addr, next.Addr().String())
		last := dial()
		info, _ := sannet.InfoOf(last)
		assert.Equal(t, san, info.Path == sanswitch.PathSAN, info)

		seen := map[byte]bool{}
		take := func(l net.Listener) bool {
			l.(*sannet.Listener).SetDeadline(time.Now().Add(stuck))
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return false
			}
			require.NoError(t, err)
			defer c.Close()
			b := make([]byte, 1)
			_, err = io.ReadFull(c, b)
			require.NoError(t, err)
			seen[b[0]] = true
			return true
		}
		for take(old) {
		}
		if san {
			assert.GreaterOrEqual(t, len(seen), waiting)
		}
		for len(seen) < len(clients) && take(next) {
		}
		assert.Len(t, seen, len(clients))
		require.NoError(t, next.Close())
		old.Close()
		for _, c := range clients {
			c.Close()
		}
	}
	var none *sannet.Listener
	assert.Equal(t, syscall.EINVAL, none.Drain())
	_, err := none.TCPFile()
	assert.Equal(t, syscall.EINVAL, err)
	l, err := listenWith(newSwitch(t, true))("san", "127.0.0.1:0")
	require.NoError(t, err)
	_, err = l.(*sannet.Listener).TCPFile()
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	require.NoError(t, l.(*sannet.Listener).Drain())
	_, err = l.Accept()
	assert.ErrorIs(t, err, net.ErrClosed)
	assert.ErrorIs(t, l.Close(), net.ErrClosed)
	f, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer f.Close()
	_, err = sannet.FileListener(f)
	assert.Error(t, err)
}
