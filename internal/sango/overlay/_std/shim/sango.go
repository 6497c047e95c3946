// This file is added to package net by sango, see docs/sango.md of the library.

package net

import (
	"internal/poll"
	"internal/sango/san"
	"io"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// sangoFD is what a netFD has beside its socket: a connection over the SAN in its place, or a
// listener on the SAN beside it.
type sangoFD struct {
	mu       sync.Mutex               // one goroutine takes the connection off the SAN
	conn     atomic.Pointer[san.Conn] // nil where it was taken off, as the socket carries it then
	listener *san.Listener
}

// san returns the connection over the SAN, nil if the socket carries it.
func (fd *netFD) san() *san.Conn {
	if fd.sango == nil {
		return nil
	}
	return fd.sango.conn.Load()
}

// sangoConn returns a netFD that has no socket.
func sangoConn(c *san.Conn, network string) *netFD {
	fd := &netFD{
		pfd:         poll.FD{Sysfd: -1, IsStream: true, ZeroReadIsEOF: true},
		family:      sangoFamily(c.Local.Addr()),
		sotype:      syscall.SOCK_STREAM,
		isConnected: true,
		net:         network,
		laddr:       TCPAddrFromAddrPort(c.Local),
		raddr:       TCPAddrFromAddrPort(c.Remote),
		sango:       new(sangoFD),
	}
	fd.sango.conn.Store(c)
	runtime.SetFinalizer(fd, func(fd *netFD) { go fd.Close() }) // which may wait
	return fd
}

func sangoFamily(a netip.Addr) int {
	if a.Is4() {
		return syscall.AF_INET
	}
	return syscall.AF_INET6
}

// sangoClose closes what is on the SAN; done tells that there is no socket to close.
func (fd *netFD) sangoClose() (done bool, err error) {
	switch {
	case fd.sango == nil:
		return false, nil
	case fd.sango.listener != nil:
		fd.sango.listener.Close()
		return false, nil
	}
	c := fd.sango.conn.Load()
	if c == nil {
		return false, nil
	}
	err = c.Close()
	if err == san.ErrDetached {
		fd.sangoWait()
		return false, nil
	}
	runtime.SetFinalizer(fd, nil)
	return true, err
}

// sangoWait waits until the connection has been taken off the SAN, which has begun.
func (fd *netFD) sangoWait() {
	fd.sango.mu.Lock()
	defer fd.sango.mu.Unlock()
}

// sangoLeave takes a connection off the SAN, as a program wants its socket, or a listener, whose
// socket another process gets.
func (fd *netFD) sangoLeave(data bool) error {
	if fd.sango == nil {
		return nil
	}
	if fd.sango.listener != nil {
		fd.sango.listener.Leave()
		return nil
	}
	fd.sango.mu.Lock()
	defer fd.sango.mu.Unlock()
	c := fd.sango.conn.Load()
	if c == nil {
		return nil
	}
	d, err := c.Detach(data)
	if err != nil {
		return err
	}
	defer fd.sango.conn.Store(nil)
	fd.pfd.Sysfd = d.FD
	if err := fd.pfd.Init(fd.net, true); err != nil {
		poll.CloseFunc(d.FD)
		fd.pfd.Sysfd = -1 // the connection is lost
		return err
	}
	if !d.ReadDeadline.IsZero() {
		fd.pfd.SetReadDeadline(d.ReadDeadline)
	}
	if !d.WriteDeadline.IsZero() {
		fd.pfd.SetWriteDeadline(d.WriteDeadline)
	}
	return nil
}

func (fd *netFD) sangoRead(c *san.Conn, p []byte) (int, error) {
	n, err := c.Read(p)
	runtime.KeepAlive(fd)
	if err == san.ErrDetached {
		fd.sangoWait()
		return fd.Read(p)
	}
	return n, wrapSyscallError(readSyscallName, err)
}

func (fd *netFD) sangoWrite(c *san.Conn, p []byte) (int, error) {
	n, err := c.Write(p)
	runtime.KeepAlive(fd)
	if err == san.ErrDetached {
		fd.sangoWait()
		m, err := fd.Write(p[n:])
		return n + m, err
	}
	return n, wrapSyscallError(writeSyscallName, err)
}

func (fd *netFD) sangoShutdown(c *san.Conn, how int) error {
	err := c.Shutdown(how)
	runtime.KeepAlive(fd)
	if err == san.ErrDetached {
		fd.sangoWait()
		return fd.shutdown(how)
	}
	return wrapSyscallError("shutdown", err)
}

// sangoGather is how many bytes of net.Buffers are written as one.
const sangoGather = 64 << 10

func (fd *netFD) sangoWriteBuffers(c *san.Conn, v *Buffers) (n int64, err error) {
	total := 0
	for _, b := range *v {
		total += len(b)
	}
	if total <= sangoGather {
		all := make([]byte, 0, total)
		for _, b := range *v {
			all = append(all, b...)
		}
		m, err := fd.sangoWrite(c, all)
		v.consume(int64(m))
		return int64(m), err
	}
	for len(*v) > 0 {
		m, err := fd.Write((*v)[0])
		n += int64(m)
		v.consume(int64(m))
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// sangoDeadline is that of a listener, or of a connection over the SAN. done tells that nothing
// else is to be done.
func (fd *netFD) sangoDeadline(t time.Time, read, write bool) (done bool, err error) {
	if fd.sango == nil {
		return false, nil
	}
	if l := fd.sango.listener; l != nil {
		if err := fd.pfd.SetDeadline(t); err != nil {
			return true, err
		}
		return true, l.SetDeadline(t)
	}
	c := fd.sango.conn.Load()
	if c == nil {
		return false, nil
	}
	if read {
		err = c.SetReadDeadline(t)
	}
	if write && err == nil {
		err = c.SetWriteDeadline(t)
	}
	runtime.KeepAlive(fd)
	if err == san.ErrDetached {
		fd.sangoWait()
		return false, nil
	}
	return true, err
}

// sangoOption gives the error of an option the form of a system call's.
func sangoOption(fd *netFD, err error) error {
	runtime.KeepAlive(fd)
	return wrapSyscallError("setsockopt", err)
}

// sangoSeconds is a keep-alive time as the kernel takes it.
func sangoSeconds(d, zero time.Duration) time.Duration {
	if d == 0 {
		d = zero
	}
	return roundDurationUp(d, time.Second) * time.Second
}

func sangoKeepAliveIdle(fd *netFD, c *san.Conn, d time.Duration) error {
	if d < 0 {
		return nil
	}
	return sangoOption(fd, c.SetKeepAliveIdle(sangoSeconds(d, defaultTCPKeepAliveIdle)))
}

func sangoKeepAliveInterval(fd *netFD, c *san.Conn, d time.Duration) error {
	if d < 0 {
		return nil
	}
	return sangoOption(fd, c.SetKeepAliveInterval(sangoSeconds(d, defaultTCPKeepAliveInterval)))
}

func sangoKeepAliveCount(fd *netFD, c *san.Conn, n int) error {
	if n == 0 {
		n = defaultTCPKeepAliveCount
	} else if n < 0 {
		return nil
	}
	return sangoOption(fd, c.SetKeepAliveCount(n))
}

// sangoCopies reports whether the kernel cannot copy from r to c, as one of them is over the SAN.
func sangoCopies(c *netFD, r io.Reader) bool {
	if c.san() != nil {
		return true
	}
	if lr, ok := r.(*io.LimitedReader); ok {
		r = lr.R
	}
	switch r := r.(type) {
	case *TCPConn:
		return r.ok() && r.fd.san() != nil
	case tcpConnWithoutWriteTo:
		return r.ok() && r.fd.san() != nil
	}
	return false
}

// sangoWriteTo is writeTo of a connection over the SAN.
func (c *TCPConn) sangoWriteTo(s *san.Conn, w io.Writer) (int64, error) {
	n, err, read := s.CopyTo(w)
	runtime.KeepAlive(c.fd)
	if err == san.ErrDetached {
		c.fd.sangoWait()
		m, err := c.writeTo(w)
		return n + m, err
	}
	if read {
		err = &OpError{Op: "read", Net: c.fd.net, Source: c.fd.laddr, Addr: c.fd.raddr,
			Err: wrapSyscallError(readSyscallName, err)}
	}
	return n, err
}
