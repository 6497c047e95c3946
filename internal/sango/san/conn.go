//go:build linux

package san

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
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

	// io is held, for reading, by whoever reads or writes; who takes the connection off the SAN wakes
	// them, and waits until all have let go.
	io  sync.RWMutex
	off bool // with io: it is off the SAN

	mu        sync.Mutex
	keepAlive probe.KeepAlive
	socket    int // stands for the connection where a program wants to see a descriptor; -1: there is none yet
	users     int // calls that use the socket
	linger    int
	shut      [2]bool // reading, writing were ended
	deadlines [2]time.Time
	state     connState
	leaving   atomic.Bool // Detach has begun
}

// connState is how far a connection has come.
type connState uint8

const (
	open     connState = iota
	closed             // by Close
	detached           // off the SAN
)

// ErrDetached is the error of what is to be done to the socket by now: the connection was taken off
// the SAN.
var ErrDetached = errors.New("not on the SAN any more")

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

// Read reads what has arrived, or waits for it. Where the connection is taken off the SAN
// meanwhile, the error is ErrDetached, and nothing was read.
func (c *Conn) Read(b []byte) (int, error) {
	c.io.RLock()
	defer c.io.RUnlock()
	if c.off {
		return 0, ErrDetached
	}
	n, err := c.s.Read(b)
	return n, c.kicked(err)
}

// Write writes all of b. Where the connection is taken off the SAN meanwhile, the error is
// ErrDetached, and the rest is to be written elsewhere.
func (c *Conn) Write(b []byte) (int, error) {
	c.io.RLock()
	defer c.io.RUnlock()
	if c.off {
		return 0, ErrDetached
	}
	n, err := c.s.Write(b)
	return n, c.kicked(err)
}

// kicked returns the error of a call that may have been ended by Detach.
func (c *Conn) kicked(err error) error {
	if err == os.ErrDeadlineExceeded && c.leaving.Load() {
		return ErrDetached
	}
	return err
}

// CopyTo reads until the end, and writes everything to w. read tells that the error is that of
// reading.
//
// Errors are those of w, or read, or ErrDetached, as Read has it.
func (c *Conn) CopyTo(w io.Writer) (n int64, err error, read bool) {
	c.io.RLock()
	defer c.io.RUnlock()
	if c.off {
		return 0, ErrDetached, false
	}
	n, err = c.s.WriteTo(leaver{c, w})
	if re, ok := err.(*session.ReadError); ok {
		err = c.kicked(re.Err)
		return n, err, err != ErrDetached
	}
	return n, err, false
}

// leaver is a writer for CopyTo, which may wait for long, and has the connection taken off the
// SAN then.
type leaver struct {
	c *Conn
	w io.Writer
}

func (l leaver) Write(b []byte) (int, error) {
	l.c.io.RUnlock()
	defer l.c.io.RLock()
	n, err := l.w.Write(b)
	if err == nil && l.c.leaving.Load() {
		err = ErrDetached
	}
	return n, err
}

// Close closes the connection.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.state == detached {
		c.mu.Unlock()
		return ErrDetached
	}
	c.state = closed
	c.dropSocket()
	c.mu.Unlock()
	return c.s.Close()
}

// Shutdown is that of a socket.
func (c *Conn) Shutdown(how int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == detached {
		return ErrDetached
	}
	if how == syscall.SHUT_RD {
		c.shut[0] = true
		return c.s.CloseRead()
	}
	c.shut[1] = true
	return c.s.CloseWrite()
}

// SetReadDeadline bounds reads.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == detached {
		return ErrDetached
	}
	c.deadlines[0] = t
	return c.s.SetReadDeadline(t)
}

// SetWriteDeadline bounds writes.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == detached {
		return ErrDetached
	}
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
