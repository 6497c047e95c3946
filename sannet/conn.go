package sannet

import (
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sansock/internal/bubble"
	"sansock/session"
	sanswitch "sansock/switch"
)

// Conn is a connection over the SAN. It has the methods of *net.TCPConn, which behave and fail alike, but for the
// differences that the package comment lists. All methods may be called from any goroutine.
type Conn struct {
	s       atomic.Pointer[session.Conn] // replaced where a hand-over is undone
	network string                       // as given to Dial or Listen, for errors
	laddr   *net.TCPAddr
	raddr   *net.TCPAddr
	route   sanswitch.Route
	sw      *sanswitch.Switch
	closed  atomic.Bool // for options that do not reach the session
	cleanup runtime.Cleanup

	mu sync.Mutex // also for the order in which changes of keepAlive reach the session, whose lock is below it
	// +checklocks:mu
	keepAlive net.KeepAliveConfig
}

// newConn wraps a session that came from network.
func newConn(network string, s *session.Conn, route sanswitch.Route) *Conn {
	c := &Conn{
		network:   network,
		laddr:     tcpAddr(s.LocalAddr()),
		raddr:     tcpAddr(s.RemoteAddr()),
		route:     route,
		keepAlive: systemKeepAlive,
	}
	c.takes(s)
	return c
}

// takes has c use s, and close it where the program forgets c, as the finalizer of a socket
// would. Nothing in s refers to c, whose methods need c after every call of the session's, for
// the error that it may return. A bubble of testing/synctest ends with all that is in it, and
// cannot be reached from outside.
func (c *Conn) takes(s *session.Conn) {
	c.s.Store(s)
	if bubble.ID() != 0 {
		return
	}
	c.cleanup = runtime.AddCleanup(c, func(s *session.Conn) { go s.Close() }, s) // it may wait
}

// tcpAddr is net.TCPAddrFromAddrPort, with IPv4 in four bytes as net has it.
func tcpAddr(a netip.AddrPort) *net.TCPAddr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(a.Addr().Unmap(), a.Port()))
}

func (c *Conn) ok() bool { return c != nil && c.s.Load() != nil }

// Read reads up to len(b) bytes and returns as soon as there are some. At the end of what the peer sent, the error
// is io.EOF.
func (c *Conn) Read(b []byte) (int, error) {
	if !c.ok() {
		return 0, syscall.EINVAL
	}
	n, err := c.s.Load().Read(b)
	if err != nil && err != io.EOF {
		err = c.error("read", "read", err)
	}
	return n, err
}

// Write writes all of b, and returns when b may be used again. When it fails, n tells exactly how many bytes the peer can
// still read of it.
func (c *Conn) Write(b []byte) (int, error) {
	if !c.ok() {
		return 0, syscall.EINVAL
	}
	n, err := c.s.Load().Write(b)
	if err != nil {
		err = c.error("write", "write", err)
	}
	return n, err
}

// Close closes the connection and wakes every call that waits on it. What was written still reaches the peer, in the
// background (see SetLinger), unless there is received data that was not read: then the peer's reads and
// writes fail with ECONNRESET. Closing again is an error that is net.ErrClosed.
func (c *Conn) Close() error {
	if !c.ok() {
		return syscall.EINVAL
	}
	c.closed.Store(true)
	if err := c.s.Load().Close(); err != nil {
		return c.error("close", "close", err)
	}
	return nil
}

// CloseRead ends reading: Read returns what has arrived before, and then io.EOF. The peer is not told; what it still writes
// is dropped.
func (c *Conn) CloseRead() error {
	if !c.ok() {
		return syscall.EINVAL
	}
	if err := c.s.Load().CloseRead(); err != nil {
		return c.error("close", "shutdown", err)
	}
	return nil
}

// CloseWrite ends writing: the peer reads io.EOF after everything that was written, and Write fails with EPIPE.
func (c *Conn) CloseWrite() error {
	if !c.ok() {
		return syscall.EINVAL
	}
	if err := c.s.Load().CloseWrite(); err != nil {
		return c.error("close", "shutdown", err)
	}
	return nil
}

// LocalAddr returns the local address, a *net.TCPAddr. It is shared by all calls: do not modify it.
func (c *Conn) LocalAddr() net.Addr {
	if !c.ok() {
		return nil
	}
	return c.laddr
}

// RemoteAddr returns the peer's address, a *net.TCPAddr. It is shared by all calls: do not modify it.
func (c *Conn) RemoteAddr() net.Addr {
	if !c.ok() {
		return nil
	}
	return c.raddr
}

// SetDeadline is SetReadDeadline and SetWriteDeadline.
func (c *Conn) SetDeadline(t time.Time) error {
	if !c.ok() {
		return syscall.EINVAL
	}
	return c.setError(c.s.Load().SetDeadline(t))
}

// SetReadDeadline bounds the Read that waits now and those to come: past t they fail with os.ErrDeadlineExceeded.
// The connection can be used on once the deadline is moved, or cleared with a zero t.
func (c *Conn) SetReadDeadline(t time.Time) error {
	if !c.ok() {
		return syscall.EINVAL
	}
	return c.setError(c.s.Load().SetReadDeadline(t))
}

// SetWriteDeadline bounds the Write that waits now and those to come, as SetReadDeadline does for Read.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	if !c.ok() {
		return syscall.EINVAL
	}
	return c.setError(c.s.Load().SetWriteDeadline(t))
}

// error gives err, bare from the session, the form that net gives an error of this operation. The call is the system
// call that a *net.TCPConn would have made.
func (c *Conn) error(op, call string, err error) error {
	if errno, ok := err.(syscall.Errno); ok {
		err = os.NewSyscallError(call, errno)
	}
	return c.opError(op, err)
}

func (c *Conn) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: c.network, Source: c.laddr, Addr: c.raddr, Err: err}
}

// setError is error for the options of which net's errors name the local address only.
func (c *Conn) setError(err error) error {
	if err == nil {
		return nil
	}
	if errno, ok := err.(syscall.Errno); ok {
		err = os.NewSyscallError("setsockopt", errno)
	}
	return &net.OpError{Op: "set", Net: c.network, Addr: c.laddr, Err: err}
}
