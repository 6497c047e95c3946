// Package net stands in for package net in what package net itself imports: the library below it,
// which cannot import it. What has to reach the system does so by way of Host, which the real
// package sets. What is not needed there panics.
package net

import (
	"context"
	"internal/poll"
	"net/netip"
	"strconv"
	"syscall"
	"time"
)

// ErrClosed is that of the real package.
var ErrClosed error = poll.ErrNetClosing

// Host is what the real package does for this one.
var Host struct {
	ListenUnix     func(network, name string) (UnixListening, error)
	DialUnix       func(ctx context.Context, network, name string) (UnixSocket, error)
	InterfaceAddrs func() ([]netip.Prefix, error)
}

// UnixSocket is a *net.UnixConn.
type UnixSocket interface {
	Read(b []byte) (int, error)
	Write(b []byte) (int, error)
	ReadMsg(b, oob []byte) (n, oobn, flags int, err error)
	WriteMsg(b, oob []byte) (n, oobn int, err error)
	SyscallConn() (syscall.RawConn, error)
	SetDeadline(t time.Time) error
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
	Close() error
}

// UnixListening is a *net.UnixListener.
type UnixListening interface {
	AcceptSocket() (UnixSocket, error)
	Close() error
}

// UnixConn is a connection over a Unix socket.
type UnixConn struct{ UnixSocket }

// RemoteAddr panics.
func (c *UnixConn) RemoteAddr() Addr { panic(unused) }

// ReadMsgUnix reads a message.
func (c *UnixConn) ReadMsgUnix(b, oob []byte) (n, oobn, flags int, addr *UnixAddr, err error) {
	n, oobn, flags, err = c.ReadMsg(b, oob)
	return n, oobn, flags, nil, err
}

// WriteMsgUnix writes a message.
func (c *UnixConn) WriteMsgUnix(b, oob []byte, _ *UnixAddr) (n, oobn int, err error) {
	return c.WriteMsg(b, oob)
}

// UnixAddr is the address of a Unix socket.
type UnixAddr struct{ Name, Net string }

// UnixListener listens on a Unix socket.
type UnixListener struct{ UnixListening }

// AcceptUnix accepts a connection.
func (l *UnixListener) AcceptUnix() (*UnixConn, error) {
	c, err := l.AcceptSocket()
	if err != nil {
		return nil, err
	}
	return &UnixConn{c}, nil
}

// ListenUnix listens on a Unix socket.
func ListenUnix(network string, a *UnixAddr) (*UnixListener, error) {
	l, err := Host.ListenUnix(network, a.Name)
	if err != nil {
		return nil, err
	}
	return &UnixListener{l}, nil
}

// IP is an address.
type IP []byte

// Addresses that the real package has, too.
var (
	IPv4zero        = IP(netip.IPv4Unspecified().AsSlice())
	IPv6unspecified = IP(netip.IPv6Unspecified().AsSlice())
)

// IPv4len is the length of an address of IPv4.
const IPv4len = 4

// addr returns the address, in the form of IPv4 where it has one.
func (ip IP) addr() netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// To4 returns an address of IPv4 in four bytes, nil if it is none.
func (ip IP) To4() IP {
	if a := ip.addr(); a.Is4() {
		return a.AsSlice()
	}
	return nil
}

// Equal reports whether both are the same address.
func (ip IP) Equal(x IP) bool { return ip.addr() == x.addr() }

// IsUnspecified reports whether the address is that of no host.
func (ip IP) IsUnspecified() bool { return ip.addr().IsValid() && ip.addr().IsUnspecified() }

// IsLinkLocalUnicast reports whether the address needs a zone.
func (ip IP) IsLinkLocalUnicast() bool { return ip.addr().IsLinkLocalUnicast() }

// IPAddr is an address with its zone.
type IPAddr struct {
	IP   IP
	Zone string
}

// IPNet is the address of an interface.
type IPNet struct{ IP IP }

// Network returns the name of the network.
func (n *IPNet) Network() string { return "ip+net" }

// String is for people.
func (n *IPNet) String() string { a, _ := netip.AddrFromSlice(n.IP); return a.String() }

// InterfaceAddrs returns the addresses of this host.
func InterfaceAddrs() ([]Addr, error) {
	ps, err := Host.InterfaceAddrs()
	var as []Addr
	for _, p := range ps {
		as = append(as, &IPNet{IP: p.Addr().AsSlice()})
	}
	return as, err
}

// Addr is an address.
type Addr interface {
	Network() string
	String() string
}

// Conn is a connection over TCP, of which no more is asked here.
type Conn interface {
	Close() error
	RemoteAddr() Addr
}

// TCPConn is no connection of this process: the real package has these.
type TCPConn struct{ Conn }

// SetLinger does nothing.
func (c *TCPConn) SetLinger(int) error { return nil }

// Listener is a listener.
type Listener interface {
	Accept() (Conn, error)
	Close() error
	Addr() Addr
}

// TCPAddr is an address of TCP.
type TCPAddr struct {
	IP   IP
	Port int
	Zone string
}

// AddrPort returns the address.
func (a *TCPAddr) AddrPort() netip.AddrPort {
	ip, _ := netip.AddrFromSlice(a.IP)
	return netip.AddrPortFrom(ip.WithZone(a.Zone), uint16(a.Port))
}

// Network returns "tcp".
func (a *TCPAddr) Network() string { return "tcp" }

// String is for people.
func (a *TCPAddr) String() string { return a.AddrPort().String() }

// TCPAddrFromAddrPort returns a as an address of TCP.
func TCPAddrFromAddrPort(a netip.AddrPort) *TCPAddr {
	return &TCPAddr{IP: a.Addr().AsSlice(), Zone: a.Addr().Zone(), Port: int(a.Port())}
}

// OpError is an error, which nobody gets to see.
type OpError struct {
	Op, Net      string
	Source, Addr Addr
	Err          error
}

// Error is for people.
func (e *OpError) Error() string { return e.Op + " " + e.Net + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

// AddrError is an error, likewise.
type AddrError struct{ Err, Addr string }

// Error is for people.
func (e *AddrError) Error() string { return "address " + e.Addr + ": " + e.Err }

// Dialer dials Unix sockets.
type Dialer struct {
	Timeout        time.Duration
	FallbackDelay  time.Duration
	Deadline       time.Time
	LocalAddr      Addr
	Resolver       *Resolver
	Cancel         <-chan struct{}
	Control        func(network, address string, c syscall.RawConn) error
	ControlContext func(ctx context.Context, network, address string, c syscall.RawConn) error
}

// DialContext dials a Unix socket.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (Conn, error) {
	if network == "tcp" {
		return nil, ctx.Err()
	}
	c, err := Host.DialUnix(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &UnixConn{c}, nil
}

// KeepAliveConfig has the options of keep-alive.
type KeepAliveConfig struct {
	Enable         bool
	Idle, Interval time.Duration
	Count          int
}

// ListenConfig listens nowhere.
type ListenConfig struct {
	Control func(network, address string, c syscall.RawConn) error
}

const unused = "sango: package net listens, looks names up, and tells addresses by itself"

// Listen panics.
func (lc *ListenConfig) Listen(context.Context, string, string) (Listener, error) { panic(unused) }

// Resolver looks nothing up.
type Resolver struct{}

// DefaultResolver looks nothing up.
var DefaultResolver = new(Resolver)

// LookupPort panics.
func (r *Resolver) LookupPort(context.Context, string, string) (int, error) { panic(unused) }

// LookupIP panics.
func (r *Resolver) LookupIP(context.Context, string, string) ([]IP, error) { panic(unused) }

// LookupIPAddr panics.
func (r *Resolver) LookupIPAddr(context.Context, string) ([]IPAddr, error) { panic(unused) }

// SplitHostPort splits addresses that are literal.
func SplitHostPort(s string) (host, port string, err error) {
	a, err := netip.ParseAddrPort(s)
	return a.Addr().String(), strconv.Itoa(int(a.Port())), err
}
