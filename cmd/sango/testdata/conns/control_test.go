package conns

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

type control func(network, address string, c syscall.RawConn) error

func setter(level, num, value int) control {
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		cerr := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), level, num, value) })
		return errors.Join(cerr, err)
	}
}

func TestControl(t *testing.T) {
	const (
		reusePort = 15
		priority  = 12
	)
	for _, c := range []struct {
		name    string
		control control
		tcp     string // why it is over TCP
	}{
		{"nothing", func(string, string, syscall.RawConn) error { return nil }, ""},
		{"SO_REUSEADDR", setter(syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1), ""},
		{"SO_REUSEPORT", setter(syscall.SOL_SOCKET, reusePort, 1), ""},
		{"SO_RCVBUF", setter(syscall.SOL_SOCKET, syscall.SO_RCVBUF, 1<<18), ""},
		{"TCP_NODELAY", setter(syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 0), ""},
		{"SO_KEEPALIVE", setter(syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1), ""},
		{"TCP_USER_TIMEOUT", setter(syscall.IPPROTO_TCP, userTimeout, 9000), ""},
		{"SO_PRIORITY", setter(syscall.SOL_SOCKET, priority, 2), "SO_PRIORITY"},
		{"IP_TOS", setter(syscall.IPPROTO_IP, syscall.IP_TOS, 0x10), "IP_TOS"},
		{"bind", func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) {
				syscall.Bind(int(fd), &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
			})
		}, "bind"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := listen(t)
			var calls atomic.Int32
			d := net.Dialer{Control: func(network, address string, rc syscall.RawConn) error {
				calls.Add(1)
				equal(t, network, "tcp4")
				equal(t, address, l.Addr().String())
				return c.control(network, address, rc)
			}}
			conn := must[net.Conn](t)(d.Dial("tcp", l.Addr().String()))
			defer conn.Close()
			if c.tcp == "" {
				overSAN(t, conn)
			} else {
				overTCP(t, conn, c.tcp)
			}
			equal(t, calls.Load(), 1)
			if c.name == "SO_PRIORITY" { // the socket that was seen is the one that is used
				equal(t, option(t, conn.(*net.TCPConn), syscall.SOL_SOCKET, priority), 2)
			}
		})
	}
}

func TestControlForbids(t *testing.T) {
	l := listen(t)
	forbidden := errors.New("not there")
	d := net.Dialer{Control: func(string, string, syscall.RawConn) error { return forbidden }}
	_, err := d.Dial("tcp", l.Addr().String())
	var oe *net.OpError
	if !errors.As(err, &oe) || oe.Op != "dial" || oe.Err != forbidden {
		t.Fatal(err)
	}
}

// Where the SAN fails, as there is no listener on it, the function is not called again.
func TestControlOnceForTCP(t *testing.T) {
	// A listener that sango does not know of.
	fd := must[int](t)(syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0))
	defer syscall.Close(fd)
	at := &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	if err := errors.Join(syscall.Bind(fd, at), syscall.Listen(fd, 8)); err != nil {
		t.Fatal(err)
	}
	sa := must[syscall.Sockaddr](t)(syscall.Getsockname(fd)).(*syscall.SockaddrInet4)
	addr := &net.TCPAddr{IP: net.IP(sa.Addr[:]), Port: sa.Port}
	var calls atomic.Int32
	d := net.Dialer{ControlContext: func(context.Context, string, string, syscall.RawConn) error {
		calls.Add(1)
		return nil
	}}
	c := must[net.Conn](t)(d.Dial("tcp", addr.String()))
	defer c.Close()
	overTCP(t, c, "no listener")
	equal(t, calls.Load(), 1)
}

// The socket is of the kind that net makes: one of IPv6 to dial IPv4 with, in this case.
func TestControlFromAnyAddress(t *testing.T) {
	l := listen(t)
	var calls atomic.Int32
	set := setter(syscall.SOL_SOCKET, syscall.SO_PRIORITY, 2)
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv6unspecified}}
	d.Control = func(network, address string, c syscall.RawConn) error {
		calls.Add(1)
		equal(t, network, "tcp6")
		return set(network, address, c)
	}
	c := must[net.Conn](t)(d.Dial("tcp", l.Addr().String())).(*net.TCPConn)
	defer c.Close()
	overTCP(t, c, "SO_PRIORITY")
	equal(t, calls.Load(), 1)
	equal(t, option(t, c, syscall.SOL_SOCKET, syscall.SO_PRIORITY), 2)
}

// With KeepAlive -1 net leaves keep-alive to the function, as grpc-go has it.
func TestControlKeepAlive(t *testing.T) {
	l := listen(t)
	d := net.Dialer{KeepAlive: -1, Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1)
			syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, 33)
			syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, userTimeout, 5000)
		})
	}}
	c := must[net.Conn](t)(d.Dial("tcp", l.Addr().String())).(*net.TCPConn)
	defer c.Close()
	overSAN(t, c)
	equal(t, option(t, c, syscall.SOL_SOCKET, syscall.SO_KEEPALIVE), 1)
	equal(t, option(t, c, syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE), 33)
	equal(t, option(t, c, syscall.IPPROTO_TCP, userTimeout), 5000)
}

func TestNoKeepAlive(t *testing.T) {
	l := listen(t)
	d := net.Dialer{KeepAlive: -1, Timeout: 20 * time.Second}
	c := must[net.Conn](t)(d.Dial("tcp", l.Addr().String())).(*net.TCPConn)
	defer c.Close()
	overSAN(t, c)
	equal(t, option(t, c, syscall.SOL_SOCKET, syscall.SO_KEEPALIVE), 0)
}
