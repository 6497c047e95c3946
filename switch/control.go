package sanswitch

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"sansock/internal/probe"
)

// controlled is a dial whose Control function has been called, with a socket that is not connected.
type controlled struct {
	dialer    *net.Dialer // for TCP: it uses that socket
	socket    *probe.Socket
	err       error                // that of the function
	option    error                // what it did that needs a socket, nil if nothing
	keepAlive *net.KeepAliveConfig // what it set of keep-alive, nil if nothing
}

// errNoSocket is why a Control function is not called.
var errNoSocket = errors.New("a Control function cannot see a SAN connection")

func hasControl(d *net.Dialer) bool { return d.Control != nil || d.ControlContext != nil }

// control calls the Control function of d, if there is one, for the connection to dst.
func control(ctx context.Context, d *net.Dialer, dst destination) controlled {
	if !hasControl(d) {
		return controlled{dialer: d}
	}
	call := d.ControlContext
	if call == nil {
		call = func(_ context.Context, network, address string, c syscall.RawConn) error {
			return d.Control(network, address, c)
		}
	}
	network, shown := "tcp4", dst.shown.String()
	if dst.addr.Addr().Is6() {
		network = "tcp6"
	}
	s, ch, err := probe.Dial(network == "tcp6", func(c syscall.RawConn) error {
		return call(ctx, network, shown, c)
	})
	again := *d
	again.Control = nil
	again.ControlContext = func(ctx context.Context, network, address string, c syscall.RawConn) error {
		if address == shown && err != nil {
			return err
		}
		if address == shown {
			if ok, err := s.Adopt(c); ok {
				return err
			}
		}
		return call(ctx, network, address, c)
	}
	cd := controlled{dialer: &again, socket: s, err: err}
	if ch.Option != "" {
		cd.option = errors.New(ch.Option)
	}
	if k := ch.KeepAlive; k != nil {
		cd.keepAlive = &net.KeepAliveConfig{
			Enable: k.Enable, Idle: k.Idle, Interval: k.Interval, Count: Probes(*k),
		}
	}
	return cd
}

// close closes the socket, if it was not used.
func (c controlled) close() {
	if c.socket != nil {
		c.socket.Close()
	}
}

// Probes is how many probes of keep-alive may stay without an answer. With TCP_USER_TIMEOUT that
// is what it takes until so much time has passed, one at least, whatever TCP_KEEPCNT says.
func Probes(k probe.KeepAlive) int {
	if k.UserTimeout <= 0 || k.Interval <= 0 {
		return k.Count
	}
	left := max(k.UserTimeout-k.Idle, 0)
	return max(int((left+k.Interval-time.Nanosecond)/k.Interval), 1)
}

// controlOfListener returns what the Control function of lc did to the socket of ln that it has
// to listen without a SAN for, nil if there is no such thing.
func controlOfListener(lc *net.ListenConfig, ln net.Listener) error {
	if lc.Control == nil {
		return nil
	}
	c, ok := ln.(syscall.Conn)
	if !ok || !probe.Supported {
		return errNoSocket
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	a, ok := ln.Addr().(*net.TCPAddr)
	ch, err := probe.Listener(raw, ok && a.IP.To4() == nil)
	if err == nil && ch.Option != "" {
		err = errors.New(ch.Option)
	}
	return err
}
