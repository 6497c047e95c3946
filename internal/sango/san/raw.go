//go:build linux

package san

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sansock/internal/probe"
)

// Control calls f with a descriptor that stands for the connection: a connected socket of TCP.
// What f sets of keep-alive counts for the connection. Other options can be set, and read back.
func (c *Conn) Control(f func(fd uintptr)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	fd, err := c.use(f)
	if err != nil || c.state != open {
		return err
	}
	if k := probe.KeepAliveOf(fd); k != c.keepAlive {
		c.keepAlive = k
		return c.applyKeepAlive()
	}
	return nil
}

// use calls f with the socket that stands for the connection, without mu, which it needs: f may
// call methods of the connection. It returns the socket, which may be closed then if the state
// says so.
func (c *Conn) use(f func(fd uintptr)) (int, error) {
	if err := c.needSocket(); err != nil {
		return -1, err
	}
	fd := c.socket
	c.users++
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		if c.users--; c.state != open {
			c.dropSocket()
		}
	}()
	f(uintptr(fd))
	return fd, nil
}

// dropSocket closes the socket that stands for the connection, if nobody uses it. It needs mu.
func (c *Conn) dropSocket() {
	if c.socket >= 0 && c.users == 0 {
		unix.Close(c.socket)
		c.socket = -1
	}
}

// needSocket makes the socket that stands for the connection. It needs mu.
func (c *Conn) needSocket() error {
	switch {
	case c.state == closed:
		return errClosed
	case c.state == detached:
		return ErrDetached
	case c.socket >= 0:
		return nil
	}
	fd, err := selfConnected(c.Local.Addr().Is6())
	if err != nil {
		return err
	}
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	c.keepAlive.Set(fd)
	c.socket = fd
	return nil
}

// selfConnected returns a socket that is connected to itself: it takes one descriptor, and
// nothing listens for it.
func selfConnected(six bool) (int, error) {
	family, at := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	if six {
		family, at = unix.AF_INET6, &unix.SockaddrInet6{Addr: [16]byte{15: 1}}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	fail := func(call string, err error) (int, error) {
		unix.Close(fd)
		return -1, os.NewSyscallError(call, err)
	}
	if err := unix.Bind(fd, at); err != nil {
		return fail("bind", err)
	}
	if at, err = unix.Getsockname(fd); err != nil {
		return fail("getsockname", err)
	}
	if err := unix.Connect(fd, at); err != nil && err != unix.EINPROGRESS {
		return fail("connect", err)
	}
	return fd, nil
}

// RawRead calls f, which looks whether something can be read, with a descriptor that shows the
// same as the connection: nothing yet, or its end. done tells that f has what it wanted.
// Otherwise there are data, or f waits for them, and so the connection has to be taken off the
// SAN.
func (c *Conn) RawRead(f func(fd uintptr) bool) (done, data bool, err error) {
	data, end := c.s.Ready()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch at := c.deadlines[0]; {
	case c.state == closed:
		return false, false, errClosed
	case c.state == detached:
		return false, false, nil
	case !at.IsZero() && time.Until(at) <= 0:
		return false, false, os.ErrDeadlineExceeded
	case data:
		return false, true, nil
	}
	if end != nil {
		fd, err := c.ended(end)
		if err != nil {
			return false, false, err
		}
		defer unix.Close(fd)
		f(uintptr(fd)) // it cannot wait for more
		return true, false, nil
	}
	_, err = c.use(func(fd uintptr) { done = f(fd) })
	return done, false, err
}

// ended returns a socket that has ended as the connection has.
func (c *Conn) ended(end error) (int, error) {
	fd, err := selfConnected(c.Local.Addr().Is6())
	if err != nil {
		return -1, err
	}
	if end == syscall.ECONNRESET || end == syscall.ETIMEDOUT {
		// One that cannot be connected any more: reads fail.
		other, err := brokenSocket()
		unix.Close(fd)
		return other, err
	}
	unix.Shutdown(fd, unix.SHUT_WR) // which it reads itself
	return fd, nil
}

// brokenSocket returns a socket whose peer has reset the connection.
func brokenSocket() (int, error) {
	a, b, err := tcpPair(false)
	if err != nil {
		return -1, err
	}
	unix.SetsockoptLinger(b, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	unix.Close(b)
	return a, nil
}
