//go:build linux

package san

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sansock/session"
)

// Detached is what is left of a connection that was taken off the SAN.
type Detached struct {
	FD                          int // a socket, one end of a pair
	ReadDeadline, WriteDeadline time.Time
}

// Detach takes the connection off the SAN, for good: from then on a socket of the host carries
// what comes and goes, and two goroutines of this process copy between that and the SAN. Nothing
// is lost or comes twice: calls that wait meanwhile end with ErrDetached, and are to go on with
// the socket. The peer notices nothing. data tells that something can be read, and so is to be
// found in the socket.
func (c *Conn) Detach(data bool) (d Detached, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != open {
		return d, errClosed
	}
	fd, other, err := tcpPair(c.Local.Addr().Is6())
	if err != nil {
		return d, err
	}
	if c.linger >= 0 {
		l := &unix.Linger{Onoff: 1, Linger: int32(c.linger)}
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, l)
	}
	c.keepAlive.Set(fd)
	c.state = detached
	c.dropSocket()
	c.applyKeepAlive()
	c.clear()
	if c.shut[0] {
		unix.Shutdown(fd, unix.SHUT_RD)
	}
	if c.shut[1] {
		unix.Shutdown(fd, unix.SHUT_WR)
	}
	p := &pumps{s: c.s, f: os.NewFile(uintptr(other), "tcp"), ends: make(chan struct{}, 2)}
	go p.out()
	go p.in()
	go p.end()
	if data {
		unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience/time.Millisecond))
	}
	return Detached{FD: fd, ReadDeadline: c.deadlines[0], WriteDeadline: c.deadlines[1]}, nil
}

// clear ends calls that wait on the session, which go on with the socket.
func (c *Conn) clear() {
	c.leaving.Store(true)
	c.s.SetDeadline(time.Unix(1, 0))
	c.io.Lock()
	defer c.io.Unlock()
	c.off = true
	c.s.SetDeadline(time.Time{})
}

// patience is how long data that have come over the SAN may take to come through the socket.
const patience = time.Second

// pumps copy between the session and the socket.
type pumps struct {
	s    *session.Conn
	f    *os.File
	ends chan struct{}
}

// in copies from the SAN to the socket.
func (p *pumps) in() {
	defer func() { p.ends <- struct{}{} }()
	_, err := p.s.WriteTo(p.f)
	var re *session.ReadError
	switch {
	case err == nil:
		p.shutdown(unix.SHUT_WR)
	case errors.As(err, &re):
		p.reset() // the peer's end is that of the socket
	default:
		p.s.SetLinger(0) // the program has closed the socket with data on the way
		p.s.Close()
	}
}

// out copies from the socket to the SAN.
func (p *pumps) out() {
	defer func() { p.ends <- struct{}{} }()
	_, err := io.CopyBuffer(onlyWriter{p.s}, onlyReader{p.f}, make([]byte, 64<<10))
	switch {
	case err == nil:
		p.s.CloseWrite()
	case errors.Is(err, syscall.ECONNRESET):
		p.s.SetLinger(0) // the program has closed it so
		p.s.Close()
	default:
		p.reset()
	}
}

// end cleans up when both directions are over.
func (p *pumps) end() {
	<-p.ends
	<-p.ends
	p.f.Close()
	p.s.Close()
}

func (p *pumps) shutdown(how int) {
	if rc, err := p.f.SyscallConn(); err == nil {
		rc.Control(func(fd uintptr) { unix.Shutdown(int(fd), how) })
	}
}

// reset makes the socket's other end see ECONNRESET.
func (p *pumps) reset() {
	if rc, err := p.f.SyscallConn(); err == nil {
		rc.Control(func(fd uintptr) {
			unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		})
	}
	p.f.Close()
}

type onlyWriter struct{ io.Writer }
type onlyReader struct{ io.Reader }

// tcpPair returns two sockets that are connected with each other. Neither waits.
func tcpPair(six bool) (a, b int, err error) {
	family, at := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	if six {
		family, at = unix.AF_INET6, &unix.SockaddrInet6{Addr: [16]byte{15: 1}}
	}
	const kind = unix.SOCK_STREAM | unix.SOCK_CLOEXEC
	l, err := unix.Socket(family, kind, unix.IPPROTO_TCP)
	if err != nil {
		return -1, -1, os.NewSyscallError("socket", err)
	}
	defer unix.Close(l)
	if err := unix.Bind(l, at); err != nil {
		return -1, -1, os.NewSyscallError("bind", err)
	}
	if err := unix.Listen(l, 8); err != nil {
		return -1, -1, os.NewSyscallError("listen", err)
	}
	if at, err = unix.Getsockname(l); err != nil {
		return -1, -1, os.NewSyscallError("getsockname", err)
	}
	if a, err = unix.Socket(family, kind, unix.IPPROTO_TCP); err != nil {
		return -1, -1, os.NewSyscallError("socket", err)
	}
	if err := unix.Connect(a, at); err != nil { // at once, as the backlog has room
		unix.Close(a)
		return -1, -1, os.NewSyscallError("connect", err)
	}
	if b, err = acceptFrom(l, a); err != nil {
		unix.Close(a)
		return -1, -1, err
	}
	for _, fd := range []int{a, b} {
		unix.SetNonblock(fd, true)
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	return a, b, nil
}

// acceptFrom accepts the connection of a, and none of anybody else's.
func acceptFrom(l, a int) (int, error) {
	mine, err := unix.Getsockname(a)
	if err != nil {
		return -1, os.NewSyscallError("getsockname", err)
	}
	for range 16 {
		b, from, err := unix.Accept4(l, unix.SOCK_CLOEXEC)
		if err != nil {
			return -1, os.NewSyscallError("accept4", err)
		}
		if sameAddr(from, mine) {
			return b, nil
		}
		unix.Close(b)
	}
	return -1, os.NewSyscallError("accept4", unix.ECONNABORTED)
}

func sameAddr(x, y unix.Sockaddr) bool {
	switch x := x.(type) {
	case *unix.SockaddrInet4:
		y, ok := y.(*unix.SockaddrInet4)
		return ok && x.Port == y.Port && x.Addr == y.Addr
	case *unix.SockaddrInet6:
		y, ok := y.(*unix.SockaddrInet6)
		return ok && x.Port == y.Port && x.Addr == y.Addr
	}
	return false
}
