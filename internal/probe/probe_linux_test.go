package probe

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// setting returns a Control function that sets an option.
func setting(level, num, value int) Control {
	return func(c syscall.RawConn) error {
		var err error
		cerr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, num, value) })
		return errors.Join(cerr, err)
	}
}

func TestDial(t *testing.T) {
	for _, c := range []struct {
		name    string
		six     bool
		control Control
		option  string
	}{
		{"nothing", false, func(syscall.RawConn) error { return nil }, ""},
		{"nothing", true, func(syscall.RawConn) error { return nil }, ""},
		{"SO_REUSEADDR", false, setting(unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), ""},
		{"SO_REUSEPORT", false, setting(unix.SOL_SOCKET, unix.SO_REUSEPORT, 1), ""},
		{"SO_RCVBUF", false, setting(unix.SOL_SOCKET, unix.SO_RCVBUF, 1<<16), ""},
		{"TCP_NODELAY", false, setting(unix.IPPROTO_TCP, unix.TCP_NODELAY, 1), ""},
		{"SO_PRIORITY", false, setting(unix.SOL_SOCKET, unix.SO_PRIORITY, 3), "SO_PRIORITY"},
		{"IP_TOS", false, setting(unix.IPPROTO_IP, unix.IP_TOS, 0x10), "IP_TOS"},
		{"IP_TTL above 255's bits", false, setting(unix.IPPROTO_IP, unix.IP_TTL, 7), "IP_TTL"},
		{"IPV6_TCLASS", true, setting(unix.IPPROTO_IPV6, unix.IPV6_TCLASS, 0x20), "IPV6_TCLASS"},
		{"IPV6_V6ONLY", true, setting(unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1), "IPV6_V6ONLY"},
		{"bind", false, func(c syscall.RawConn) error {
			return c.Control(func(fd uintptr) {
				unix.Bind(int(fd), &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
			})
		}, "bind"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, ch, err := Dial(c.six, c.control)
			require.NoError(t, err)
			defer s.Close()
			assert.Equal(t, c.option, ch.Option)
			assert.Nil(t, ch.KeepAlive)
		})
	}
}

func TestDialKeepAlive(t *testing.T) {
	s, ch, err := Dial(false, func(c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			KeepAlive{Enable: true, Idle: 7 * time.Second, Interval: 3 * time.Second, Count: 4,
				UserTimeout: 20 * time.Second}.Set(int(fd))
		})
	})
	require.NoError(t, err)
	defer s.Close()
	assert.Empty(t, ch.Option)
	assert.Equal(t, &KeepAlive{true, 7 * time.Second, 3 * time.Second, 4, 20 * time.Second}, ch.KeepAlive)
}

func TestDialError(t *testing.T) {
	forbidden := errors.New("not there")
	_, _, err := Dial(false, func(syscall.RawConn) error { return forbidden })
	assert.Equal(t, forbidden, err)
}

// A net.Dialer connects with the very socket that the function saw, so that it need not be called
// again.
func TestAdopt(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	s, _, err := Dial(false, setting(unix.SOL_SOCKET, unix.SO_PRIORITY, 3))
	require.NoError(t, err)
	defer s.Close()

	d := net.Dialer{ControlContext: func(_ context.Context, _, _ string, c syscall.RawConn) error {
		ok, err := s.Adopt(c)
		assert.True(t, ok)
		return err
	}}
	c, err := d.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	raw, err := c.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	raw.Control(func(fd uintptr) {
		n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PRIORITY)
		assert.NoError(t, err)
		assert.Equal(t, 3, n)
	})

	ok, err := s.Adopt(raw)
	assert.False(t, ok)
	assert.NoError(t, err)
}

// A socket of another kind is not replaced: a net.Dialer would fail to connect it.
func TestAdoptOther(t *testing.T) {
	s, _, err := Dial(false, func(syscall.RawConn) error { return nil })
	require.NoError(t, err)
	defer s.Close()
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skip(err)
	}
	defer l.Close()
	called := false
	d := net.Dialer{ControlContext: func(_ context.Context, _, _ string, c syscall.RawConn) error {
		called = true
		ok, err := s.Adopt(c)
		assert.False(t, ok)
		return err
	}}
	c, err := d.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	assert.True(t, called)
	c.Close()
}

func TestListener(t *testing.T) {
	for _, c := range []struct {
		name    string
		control Control
		option  string
	}{
		{"nothing", func(syscall.RawConn) error { return nil }, ""},
		{"SO_REUSEPORT", setting(unix.SOL_SOCKET, unix.SO_REUSEPORT, 1), ""},
		{"IP_TOS", setting(unix.IPPROTO_IP, unix.IP_TOS, 0x10), "IP_TOS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			lc := net.ListenConfig{Control: func(_, _ string, rc syscall.RawConn) error { return c.control(rc) }}
			l, err := lc.Listen(t.Context(), "tcp4", "127.0.0.1:0")
			require.NoError(t, err)
			defer l.Close()
			raw, err := l.(*net.TCPListener).SyscallConn()
			require.NoError(t, err)
			ch, err := Listener(raw, false)
			require.NoError(t, err)
			assert.Equal(t, c.option, ch.Option)
		})
	}
}
