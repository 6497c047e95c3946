package sannet

import (
	"context"
	"net"
	"syscall"
	"time"

	sanswitch "sansock/switch"
)

// Dial connects to the address on the named network. It is net.Dial for networks that are not
// TCP. For "tcp", "tcp4" and "tcp6" it connects over a SAN where one reaches the address and the
// peer listens on it, and over TCP otherwise; the connection is then a *Conn or a *net.TCPConn.
// Of a name, which is looked up once, every address is asked over the SAN, in net's order, before
// TCP is the answer. The networks "san", "san4" and "san6" are over the SAN or fail. Errors are
// those of net.Dial.
func Dial(network, address string) (net.Conn, error) {
	return new(Dialer).Dial(network, address)
}

// DialTimeout is Dial with a bound on the time that it takes, name resolution included.
func DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	d := Dialer{Timeout: timeout}
	return d.Dial(network, address)
}

// DialContext is Dial with a context, which bounds the dialing and not the connection. The hooks
// of net/http/httptrace in it are called as by net. For an http.Transport, see package sanhttp.
func DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return new(Dialer).DialContext(ctx, network, address)
}

// Dialer has the options of Dial. The zero value is Dial without options. Fields that net.Dialer has too mean the same.
// A Dialer may be used by several goroutines at a time.
type Dialer struct {
	Timeout         time.Duration
	Deadline        time.Time
	LocalAddr       net.Addr
	FallbackDelay   time.Duration
	KeepAlive       time.Duration
	KeepAliveConfig net.KeepAliveConfig
	Resolver        *net.Resolver

	// Control and ControlContext see a socket before it is connected, once for each address, as in net: their errors forbid
	// destinations. If they set what a SAN does not have, such as SO_MARK, the connection is over TCP, with that socket.
	Control        func(network, address string, c syscall.RawConn) error
	ControlContext func(ctx context.Context, network, address string, c syscall.RawConn) error

	// Switch chooses between SANs and TCP. If nil, it is the process's own, with the providers that
	// SANNET_PROVIDERS names.
	Switch *sanswitch.Switch
}

// Dial connects to the address on the named network, see the function Dial.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialContext connects to the address on the named network, see the function DialContext.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	st := stackOf(d.Switch)
	nd := net.Dialer{
		Timeout:         d.Timeout,
		Deadline:        d.Deadline,
		LocalAddr:       d.LocalAddr,
		FallbackDelay:   d.FallbackDelay,
		KeepAlive:       d.KeepAlive,
		KeepAliveConfig: d.KeepAliveConfig,
		Resolver:        d.Resolver,
		Control:         d.Control,
		ControlContext:  d.ControlContext,
	}
	r, err := st.Switch.Dial(ctx, &nd, network, address)
	if err != nil {
		return nil, st.explain(network, err)
	}
	return st.wrap(r, network, d.KeepAlive, d.KeepAliveConfig), nil
}
