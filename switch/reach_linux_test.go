package sanswitch

import (
	"context"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"sansock/emu"
)

// adopt has s listen with the socket of ln, as another process would.
func adopt(t *testing.T, s *Switch, ln net.Listener) *Listener {
	f, err := ln.(*net.TCPListener).File()
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, ln.Close())
	return adoptFile(t, s, f)
}

func adoptFile(t *testing.T, s *Switch, f *os.File) *Listener {
	ln, err := net.FileListener(f)
	require.NoError(t, err)
	l := s.Adopt(ln)
	t.Cleanup(func() { l.Close() })
	return l
}

// A socket for IPv6 alone leaves IPv4 to whom the kernel gives it, and one for both takes both.
func TestAdoptFamily(t *testing.T) {
	needIPv6(t)
	s := newSwitch(t, Config{HeadStart: patient}, newFaulty(t, emu.Config{}))
	for network, only6 := range map[string]bool{"tcp6": true, "tcp": false} {
		ln, err := net.Listen(network, "[::]:0")
		require.NoError(t, err)
		port := portOf(ln.Addr())
		l := adopt(t, s, ln)
		r := dial(t, s, "tcp", "[::1]:"+port)
		assertSAN(t, r)
		echo(t, r, accept(t, l))

		other, err := net.Listen("tcp4", "0.0.0.0:"+port)
		assert.Equal(t, only6, err == nil, "as the kernel has it")
		r = dial(t, s, "tcp", "127.0.0.1:"+port)
		if only6 {
			assertTCP(t, r, ReasonPeerDeclined)
			require.NotNil(t, r.Conn)
			c, err := other.Accept()
			require.NoError(t, err)
			assert.Equal(t, r.Conn.LocalAddr().String(), c.RemoteAddr().String())
			c.Close()
			other.Close()
		} else {
			assertSAN(t, r)
			echo(t, r, accept(t, l))
		}
	}
}

// A socket that is bound to a device takes no connections from elsewhere, over a SAN neither.
func TestAdoptBoundToDevice(t *testing.T) {
	s := newSwitch(t, Config{HeadStart: patient}, newFaulty(t, emu.Config{}))
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if cerr := c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), "lo") }); cerr != nil {
			return cerr
		}
		return err
	}}
	ln, err := lc.Listen(context.Background(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Skip("*** NOT RUN: ", err, " ***")
	}
	l := adopt(t, s, ln)
	r := dial(t, s, "tcp", l.Addr().String())
	assertTCP(t, r, ReasonNoListener)
	a := accept(t, l)
	assertTCP(t, a, ReasonNoProvider)
	assert.Equal(t, errDevice, a.Route.Err)
}
