//go:build linux

package san

import (
	"io"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"sansock/internal/probe"
	"sansock/session"
	sanswitch "sansock/switch"
)

// Conn is a connection over the SAN. Errors are bare, as those of system calls.
type Conn struct {
	Local, Remote netip.AddrPort // never IPv4-mapped

	s *session.Conn

	mu        sync.Mutex
	keepAlive probe.KeepAlive
	socket    int // stands for the connection where a program wants to see a descriptor; -1: there is none yet
	linger    int
	shut      [2]bool // reading, writing were ended
	deadlines [2]time.Time
	state     connState
}

// connState is how far a connection has come.
type connState uint8

const (
	open     connState = iota
	closed             // by Close
	detached           // off the SAN
)

// systemKeepAlive is what holds for a socket of which nothing was set.
var systemKeepAlive = probe.KeepAlive{Idle: 7200 * time.Second, Interval: 75 * time.Second, Count: 9}

// newConn returns the connection of a session. keep is what a Control function has set, nil if it
// has not.
func newConn(r sanswitch.Result, keep *probe.KeepAlive) *Conn {
	c := &Conn{s: r.Session, socket: -1, linger: -1, keepAlive: systemKeepAlive}
	c.Local, c.Remote = unmap(c.s.LocalAddr()), unmap(c.s.RemoteAddr())
	if keep != nil {
		c.changeKeepAlive(func(k *probe.KeepAlive) { *k = *keep })
	}
	return c
}

func unmap(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// Read reads what has arrived, or waits for it.
func (c *Conn) Read(b []byte) (int, error) { return c.s.Read(b) }

// Write writes all of b.
func (c *Conn) Write(b []byte) (int, error) { return c.s.Write(b) }

// CopyTo reads until the end, and writes everything to w. read tells that the error is that of
// reading.
func (c *Conn) CopyTo(w io.Writer) (n int64, err error, read bool) {
	n, err = c.s.WriteTo(w)
	if re, ok := err.(*session.ReadError); ok {
		return n, re.Err, true
	}
	return n, err, false
}

// Close closes the connection.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.state == open {
		c.state = closed
	}
	if c.socket >= 0 {
		syscall.Close(c.socket)
		c.socket = -1
	}
	c.mu.Unlock()
	return c.s.Close()
}

// Shutdown is that of a socket.
func (c *Conn) Shutdown(how int) error {
	if how == syscall.SHUT_RD {
		c.mu.Lock()
		c.shut[0] = true
		c.mu.Unlock()
		return c.s.CloseRead()
	}
	c.mu.Lock()
	c.shut[1] = true
	c.mu.Unlock()
	return c.s.CloseWrite()
}

// SetReadDeadline bounds reads.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadlines[0] = t
	return c.s.SetReadDeadline(t)
}

// SetWriteDeadline bounds writes.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadlines[1] = t
	return c.s.SetWriteDeadline(t)
}

// SetReadBuffer sets how many bytes may wait to be read.
func (c *Conn) SetReadBuffer(n int) error { return c.s.SetReadBuffer(n) }

// SetWriteBuffer does nothing on a connection that is open.
func (c *Conn) SetWriteBuffer(n int) error { return c.s.SetWriteBuffer(n) }

// SetNoDelay does nothing on a connection that is open.
func (c *Conn) SetNoDelay(on bool) error {
	n := 0
	if on {
		n = 1
	}
	return c.setOption(syscall.IPPROTO_TCP, syscall.TCP_NODELAY, n)
}

// SetLinger sets what Close does.
func (c *Conn) SetLinger(sec int) error {
	c.mu.Lock()
	c.linger = sec
	c.mu.Unlock()
	return c.s.SetLinger(sec)
}

// setOption sets an option that nothing but the descriptor shows.
func (c *Conn) setOption(level, num, value int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == closed {
		return errClosed
	}
	if c.socket >= 0 {
		return syscall.SetsockoptInt(c.socket, level, num, value)
	}
	return nil
}
