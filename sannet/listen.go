package sannet

import (
	"context"
	"net"
	"runtime"
	"syscall"
	"time"

	"sansock/internal/bubble"
	sanswitch "sansock/switch"
)

// Listen announces on the local address. It is net.Listen for networks that are not TCP. For "tcp", "tcp4" and "tcp6"
// the listener is a *Listener and takes connections over TCP and, at the same address and port, over every SAN that
// serves it. The networks "san", "san4" and "san6" take connections over SANs only. Errors are those of net.Listen.
func Listen(network, address string) (net.Listener, error) {
	return new(ListenConfig).Listen(context.Background(), network, address)
}

// ListenConfig has the options of Listen. The zero value is Listen without options. Fields that net.ListenConfig has
// too mean the same.
type ListenConfig struct {
	// Control sees the TCP socket of the listener. If it sets what a SAN does not have, Listen does not use the SAN.
	Control         func(network, address string, c syscall.RawConn) error
	KeepAlive       time.Duration
	KeepAliveConfig net.KeepAliveConfig

	// Switch has the SANs to listen on. If nil, it is the process's own, with the providers that
	// SANNET_PROVIDERS names.
	Switch *sanswitch.Switch
}

// Listen announces on the local address, see the function Listen. The context bounds the resolution of the address,
// not the listener.
func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	nc := net.ListenConfig{Control: lc.Control, KeepAlive: lc.KeepAlive, KeepAliveConfig: lc.KeepAliveConfig}
	if !isStream(network) {
		return nc.Listen(ctx, network, address)
	}
	st := stackOf(lc.Switch)
	l, err := st.Switch.Listen(ctx, &nc, network, address)
	if err != nil {
		return nil, st.explain(network, err)
	}
	return lc.listener(l, st, network), nil
}

// listener is what the user gets of l. Where it is forgotten it is closed, as a socket would be;
// see Conn.takes.
func (lc *ListenConfig) listener(l *sanswitch.Listener, st stack, network string) *Listener {
	ul := &Listener{l: l, stack: st, network: network, keepAlive: lc.KeepAlive, keepAliveConfig: lc.KeepAliveConfig}
	if bubble.ID() == 0 {
		runtime.AddCleanup(ul, func(l *sanswitch.Listener) { go l.Close() }, l)
	}
	return ul
}

// isStream reports whether the switch knows the network, rather than net.
func isStream(network string) bool {
	switch network {
	case "tcp", "tcp4", "tcp6", "san", "san4", "san6":
		return true
	}
	return false
}

// Listener is a listener for connections over TCP and SANs. All methods may be called from any goroutine.
type Listener struct {
	l               *sanswitch.Listener
	stack           stack
	network         string
	keepAlive       time.Duration
	keepAliveConfig net.KeepAliveConfig
}

func (l *Listener) ok() bool { return l != nil && l.l != nil }

// Accept waits for the next connection, which is a *Conn if it came over a SAN and a *net.TCPConn otherwise.
// After Close the error is net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	if !l.ok() {
		return nil, syscall.EINVAL
	}
	r, err := l.l.Accept()
	if err != nil {
		return nil, err
	}
	return l.stack.wrap(r, l.network, l.keepAlive, l.keepAliveConfig), nil
}

// Close stops listening and wakes Accept. Connections that were not accepted yet end; others are left alone.
func (l *Listener) Close() error {
	if !l.ok() {
		return syscall.EINVAL
	}
	return l.l.Close()
}

// Addr returns the address that is listened on, a *net.TCPAddr. It is shared by all calls: do not modify it.
func (l *Listener) Addr() net.Addr {
	if !l.ok() {
		return nil
	}
	return l.l.Addr()
}

// SetDeadline bounds the Accept that waits now and those to come, which fail with os.ErrDeadlineExceeded past t. A zero t
// clears the bound.
func (l *Listener) SetDeadline(t time.Time) error {
	if !l.ok() {
		return syscall.EINVAL
	}
	return l.l.SetDeadline(t)
}
