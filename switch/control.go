package sanswitch

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"sansock/internal/probe"
)

// control is the Control function of a dial to one address. Whoever comes first, the SAN or TCP,
// has it called, with a socket that is not connected; a connection over TCP then uses that. A nil
// control is that of a dial without such a function.
type control struct {
	ctx     context.Context // that of the dial
	d       *net.Dialer
	network string // as the function is told, like the address
	address string

	once    sync.Once
	verdict verdict

	mu sync.Mutex // a leaf
	// +checklocks:mu
	socket *probe.Socket // nil: there is none yet, or the function has failed
	// +checklocks:mu
	state controlState
}

// controlState tells who may still use the socket of a control.
type controlState uint8

const (
	controlOpen controlState = iota
	controlOver              // nobody: the dial is over
)

// verdict is what a Control function said.
type verdict struct {
	err       error                // its own
	option    error                // what it did that needs a socket, nil if nothing
	keepAlive *net.KeepAliveConfig // what it set of keep-alive, nil if nothing
}

// controlError is the error of an attempt on the SAN that a Control function does not want.
type controlError struct{ err error }

func (e *controlError) Error() string { return e.err.Error() }
func (e *controlError) Unwrap() error { return e.err }

// errNoSocket is why a Control function is not called.
var errNoSocket = errors.New("a Control function cannot see a SAN connection")

func hasControl(d *net.Dialer) bool { return d.Control != nil || d.ControlContext != nil }

// newControl returns the Control function of d for the address, nil if there is none. tcp is the
// network's name in net.
func newControl(ctx context.Context, d *net.Dialer, tcp string, dst destination) *control {
	if !hasControl(d) {
		return nil
	}
	network := "tcp4"
	if isIPv6(d, tcp, dst) {
		network = "tcp6"
	}
	return &control{ctx: ctx, d: d, network: network, address: dst.shown.String()}
}

// call calls the function.
func (c *control) call(network, address string, rc syscall.RawConn) error {
	if c.d.ControlContext != nil {
		return c.d.ControlContext(c.ctx, network, address, rc)
	}
	return c.d.Control(network, address, rc)
}

// isIPv6 reports whether net makes a socket of IPv6 for a dial to dst.
func isIPv6(d *net.Dialer, tcp string, dst destination) bool {
	switch tcp {
	case "tcp4":
		return false
	case "tcp6":
		return true
	}
	local, _ := d.LocalAddr.(*net.TCPAddr)
	for _, a := range []*net.TCPAddr{local, dst.shown} {
		if a != nil && len(a.IP) > net.IPv4len && a.IP.To4() == nil {
			return true
		}
	}
	return false
}

// ask returns what the function says. It is called once.
func (c *control) ask() verdict {
	if c == nil {
		return verdict{}
	}
	c.once.Do(c.probe)
	return c.verdict
}

// probe calls the function.
func (c *control) probe() {
	if c.isOver() {
		c.verdict.err = context.Canceled // which nobody hears
		return
	}
	s, ch, err := probe.Dial(c.network == "tcp6", func(rc syscall.RawConn) error {
		return c.call(c.network, c.address, rc)
	})
	if err != nil {
		c.verdict.err = err
		return
	}
	if ch.Option != "" {
		c.verdict.option = errors.New(ch.Option)
	}
	if k := ch.KeepAlive; k != nil {
		c.verdict.keepAlive = &net.KeepAliveConfig{
			Enable: k.Enable, Idle: k.Idle, Interval: k.Interval, Count: Probes(*k),
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == controlOver {
		s.Close()
		return
	}
	c.socket = s
}

// isOver reports whether the dial is over.
func (c *control) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state == controlOver
}

// refusal is the failure of the attempt that asked, nil where the function lets it go on.
func (c *control) refusal() *failure {
	switch v := c.ask(); {
	case v.err != nil:
		return &failure{err: &controlError{v.err}, final: v.err}
	case v.option != nil:
		return &failure{err: &controlError{v.option}}
	}
	return nil
}

// dialer returns d as it dials the address over TCP.
func (c *control) dialer(d *net.Dialer) *net.Dialer {
	if c == nil {
		return d
	}
	again := *d
	again.Control = nil
	again.ControlContext = func(_ context.Context, network, address string, rc syscall.RawConn) error {
		if network != c.network || address != c.address {
			return c.call(network, address, rc) // net dials 0.0.0.0 where :: has failed
		}
		return c.adopt(rc)
	}
	return &again
}

// adopt is the Control function of a dial over TCP: rc becomes the socket that the function has
// seen. net may try once more with a socket that it has not.
func (c *control) adopt(rc syscall.RawConn) error {
	if v := c.ask(); v.err != nil {
		return v.err
	}
	c.mu.Lock()
	s, state := c.socket, c.state
	c.mu.Unlock()
	if state == controlOver {
		return context.Canceled
	}
	if ok, err := s.Adopt(rc); ok {
		return err
	}
	return c.call(c.network, c.address, rc)
}

// close ends the use of the socket, if it was not adopted.
func (c *control) close() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = controlOver
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
