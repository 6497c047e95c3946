package sanswitch

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/internal/probe"
)

// setting returns a Control function that sets an option.
func setting(level, num, value int) func(string, string, syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		cerr := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), level, num, value) })
		return errors.Join(cerr, err)
	}
}

func emulated(t *testing.T) *Switch {
	p, err := emu.New(emu.Config{})
	require.NoError(t, err)
	return newSwitch(t, Config{HeadStart: patient}, p)
}

func TestControl(t *testing.T) {
	s := emulated(t)
	l := listen(t, s, "tcp", "127.0.0.1:0")
	calls := 0
	dial := func(d net.Dialer) (Result, error) {
		calls = 0
		if control := d.Control; control != nil {
			d.Control = func(network, address string, c syscall.RawConn) error {
				calls++
				assert.Equal(t, "tcp4", network)
				assert.Equal(t, l.Addr().String(), address)
				return control(network, address, c)
			}
		}
		r, err := s.Dial(t.Context(), &d, "tcp", l.Addr().String())
		if err == nil {
			t.Cleanup(func() { stream(r).Close() })
		}
		return r, err
	}

	r, err := dial(net.Dialer{Control: setting(syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)})
	require.NoError(t, err)
	assertSAN(t, r)
	assert.Nil(t, r.KeepAlive)
	assert.Equal(t, 1, calls)

	// The socket that the function has seen is the one that connects.
	r, err = dial(net.Dialer{Control: setting(syscall.SOL_SOCKET, syscall.SO_PRIORITY, 3)})
	require.NoError(t, err)
	assertTCP(t, r, ReasonControl)
	assert.EqualError(t, r.Route.Err, "SO_PRIORITY")
	assert.Equal(t, 1, calls)
	raw, err := r.Conn.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	raw.Control(func(fd uintptr) {
		n, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_PRIORITY)
		assert.NoError(t, err)
		assert.Equal(t, 3, n)
	})

	forbidden := errors.New("not there")
	_, err = dial(net.Dialer{Control: func(string, string, syscall.RawConn) error { return forbidden }})
	assert.Equal(t, forbidden, opErrorOf(t, err).Err)
	assert.Equal(t, 1, calls)

	r, err = dial(net.Dialer{Control: setting(syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, 33)})
	require.NoError(t, err)
	assertSAN(t, r)
	require.NotNil(t, r.KeepAlive)
	assert.Equal(t, 33*time.Second, r.KeepAlive.Idle)
}

// On "san" networks there is no TCP to leave it to.
func TestControlSAN(t *testing.T) {
	s := emulated(t)
	l := listen(t, s, "san", "127.0.0.1:0")
	dial := func(control func(string, string, syscall.RawConn) error) error {
		r, err := s.Dial(t.Context(), &net.Dialer{Control: control}, "san", l.Addr().String())
		if err == nil {
			assertSAN(t, r)
			r.Session.Close()
		}
		return err
	}
	require.NoError(t, dial(setting(syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)))
	assert.ErrorContains(t, dial(setting(syscall.SOL_SOCKET, syscall.SO_PRIORITY, 3)),
		": a Control function has set what a SAN connection does not have (SO_PRIORITY)")
	forbidden := errors.New("not there")
	assert.Equal(t, forbidden, opErrorOf(t, dial(func(string, string, syscall.RawConn) error { return forbidden })).Err)
}

func TestControlOfListener(t *testing.T) {
	s := emulated(t)
	for _, c := range []struct {
		name    string
		control func(string, string, syscall.RawConn) error
		why     Reason
	}{
		{"nothing that matters", setting(syscall.SOL_SOCKET, 15, 1), ReasonSAN}, // SO_REUSEPORT
		{"SO_PRIORITY", setting(syscall.SOL_SOCKET, syscall.SO_PRIORITY, 3), ReasonNoListener},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := s.Listen(t.Context(), &net.ListenConfig{Control: c.control}, "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer l.Close()
			r := dial(t, s, "tcp", l.Addr().String())
			assert.Equal(t, c.why, r.Route.Reason)
			if a := accept(t, l); c.why != ReasonSAN {
				assertTCP(t, a, ReasonControl)
				assert.EqualError(t, a.Route.Err, "SO_PRIORITY")
			}
		})
	}
}

// A listener over TCP alone: the function is not called again for the fallback.
func TestControlOnce(t *testing.T) {
	s := emulated(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	calls := 0
	d := net.Dialer{ControlContext: func(context.Context, string, string, syscall.RawConn) error {
		calls++
		return nil
	}}
	r, err := s.Dial(t.Context(), &d, "tcp", l.Addr().String())
	require.NoError(t, err)
	defer r.Conn.Close()
	assertTCP(t, r, ReasonNoListener)
	assert.Equal(t, 1, calls)
}

func TestProbes(t *testing.T) {
	k := probe.KeepAlive{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 9}
	assert.Equal(t, 9, Probes(k))
	for timeout, n := range map[time.Duration]int{5 * time.Second: 1, 10 * time.Second: 1, 15 * time.Second: 1,
		16 * time.Second: 2, 30 * time.Second: 4} {
		k.UserTimeout = timeout
		assert.Equal(t, n, Probes(k), timeout)
	}
}

func TestDialAddr(t *testing.T) {
	s := emulated(t)
	l := listen(t, s, "tcp", "127.0.0.1:0")
	addr := l.Addr().(*net.TCPAddr).AddrPort()
	tcp := func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", addr.String())
	}
	r, err := s.DialAddr(t.Context(), netip.AddrPort{}, addr, tcp)
	require.NoError(t, err)
	defer stream(r).Close()
	assertSAN(t, r)
	echo(t, r, accept(t, l))

	r, err = newSwitch(t, Config{}).DialAddr(t.Context(), netip.AddrPort{}, addr, tcp)
	require.NoError(t, err)
	defer stream(r).Close()
	assertTCP(t, r, ReasonDisabled)

	// Errors are those of tcp, as they are.
	require.NoError(t, l.Close())
	failed := errors.New("failed")
	fails := func(context.Context) (net.Conn, error) { return nil, failed }
	_, err = s.DialAddr(t.Context(), netip.AddrPort{}, addr, fails)
	assert.Equal(t, failed, err)
}

func TestBeside(t *testing.T) {
	s := emulated(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	addr := ln.Addr().(*net.TCPAddr).AddrPort()
	l, route, err := s.Beside("tcp", addr)
	require.NoError(t, err)
	defer l.Close()
	assert.Equal(t, Route{Path: PathSAN, Provider: "emu", Reason: ReasonSAN}, route)
	r := dial(t, s, "tcp", addr.String())
	assertSAN(t, r)
	echo(t, r, accept(t, l))

	_, _, err = s.Beside("tcp", addr)
	assert.Equal(t, syscall.EADDRINUSE, err)

	none, route, err := newSwitch(t, Config{}).Beside("tcp", addr)
	require.NoError(t, err)
	assert.Nil(t, none)
	assert.Equal(t, Route{Path: PathTCP, Reason: ReasonDisabled}, route)
}
