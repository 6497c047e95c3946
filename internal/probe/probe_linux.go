package probe

import (
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Supported tells that Dial works here.
const Supported = true

// Socket is a socket that a Control function has seen.
type Socket struct {
	mu sync.Mutex
	fd int // -1: closed, or adopted
}

// Dial calls control with a new socket, made as net makes one to dial to an IPv4 address, or to
// one of IPv6, and returns that socket and what was done to it. The error is that of the
// function, or of making the socket, as net has it.
func Dial(six bool, control Control) (*Socket, Changes, error) {
	fd, err := open(six)
	if err != nil {
		return nil, Changes{}, err
	}
	s := &Socket{fd: fd}
	base, err := defaults(six)
	if err == nil {
		err = control(raw{s})
	}
	if err != nil {
		s.Close()
		return nil, Changes{}, err
	}
	return s, base.compare(fd), nil
}

// Listener compares a socket that listens with a new one. A function may have bound it, and set
// what is for listeners.
func Listener(c syscall.RawConn, six bool) (ch Changes, err error) {
	base, err := defaults(six)
	if err != nil {
		return Changes{}, err
	}
	base.bound = true
	cerr := c.Control(func(fd uintptr) { ch = base.compare(int(fd)) })
	return ch, cerr
}

// open makes a socket with the options that net sets before it calls a Control function.
func open(six bool) (int, error) {
	family := unix.AF_INET
	if six {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if six {
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1); err != nil {
		unix.Close(fd)
		return -1, os.NewSyscallError("setsockopt", err)
	}
	return fd, nil
}

// Adopt puts the socket in the place of that of c, which is closed, unless one has been adopted
// before, or that of c is of another kind, as for Multipath TCP: then ok is false. c needs to be
// as new as the socket was.
func (s *Socket) Adopt(c syscall.RawConn) (ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return false, nil
	}
	cerr := c.Control(func(fd uintptr) {
		if ok = kindOf(int(fd)) == kindOf(s.fd); ok {
			err = os.NewSyscallError("dup3", unix.Dup3(s.fd, int(fd), unix.O_CLOEXEC))
		}
	})
	unix.Close(s.fd)
	s.fd = -1
	if cerr != nil {
		return true, cerr
	}
	return ok, err
}

// kind is what a socket is for.
type kind struct{ family, protocol int }

func kindOf(fd int) (k kind) {
	k.family, _ = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	k.protocol, _ = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	return k
}

// Close closes the socket, unless it was adopted.
func (s *Socket) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd >= 0 {
		unix.Close(s.fd)
		s.fd = -1
	}
}

// raw is what the function sees.
type raw struct{ s *Socket }

func (r raw) with(f func(fd uintptr)) error {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.s.fd < 0 {
		return os.ErrClosed
	}
	f(uintptr(r.s.fd))
	return nil
}

func (r raw) Control(f func(fd uintptr)) error { return r.with(f) }

// Read does not wait, as there is nothing to wait for.
func (r raw) Read(f func(fd uintptr) bool) error { return r.with(func(fd uintptr) { f(fd) }) }

// Write does not wait either.
func (r raw) Write(f func(fd uintptr) bool) error { return r.with(func(fd uintptr) { f(fd) }) }

// baseline has the options of a socket of which nothing was set.
type baseline struct {
	options   []option
	values    []string
	keepAlive KeepAlive
	bound     bool // a local address does not matter
}

var (
	baseline4 = sync.OnceValues(func() (baseline, error) { return take(false) })
	baseline6 = sync.OnceValues(func() (baseline, error) { return take(true) })
)

// defaults returns the options of a new socket. They are those of the network namespace and its
// sysctls at first use.
func defaults(six bool) (baseline, error) {
	if six {
		return baseline6()
	}
	return baseline4()
}

func take(six bool) (baseline, error) {
	fd, err := open(six)
	if err != nil {
		return baseline{}, err
	}
	defer unix.Close(fd)
	b := baseline{options: options, keepAlive: keepAliveOf(fd)}
	if six {
		b.options = append(append([]option(nil), options...), options6...)
	}
	for _, o := range b.options {
		value, _ := o.get(fd)
		b.values = append(b.values, value)
	}
	return b, nil
}

// compare returns what was done to the socket.
func (b *baseline) compare(fd int) (ch Changes) {
	for i, o := range b.options {
		value, ok := o.get(fd)
		if b.bound && (!ok || o.num == unix.TCP_ULP && o.level == unix.IPPROTO_TCP) { // Multipath TCP
			continue
		}
		if value != b.values[i] {
			ch.Option = o.name
			break
		}
	}
	if ch.Option == "" && !b.bound {
		ch.Option = boundOrConnected(fd)
	}
	if k := keepAliveOf(fd); k != b.keepAlive {
		ch.KeepAlive = &k
	}
	return ch
}

func boundOrConnected(fd int) string {
	if _, err := unix.Getpeername(fd); err == nil {
		return "connect"
	}
	switch sa, _ := unix.Getsockname(fd); sa := sa.(type) {
	case *unix.SockaddrInet4:
		if sa.Port != 0 || sa.Addr != [4]byte{} {
			return "bind"
		}
	case *unix.SockaddrInet6:
		if sa.Port != 0 || sa.Addr != [16]byte{} {
			return "bind"
		}
	default:
		return "close" // or another socket in its place
	}
	return ""
}

// keepAliveOf returns the keep-alive options of a socket.
func keepAliveOf(fd int) KeepAlive {
	get := func(level, num int) int {
		n, _ := unix.GetsockoptInt(fd, level, num)
		return n
	}
	return KeepAlive{
		Enable:      get(unix.SOL_SOCKET, unix.SO_KEEPALIVE) != 0,
		Idle:        time.Duration(get(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE)) * time.Second,
		Interval:    time.Duration(get(unix.IPPROTO_TCP, unix.TCP_KEEPINTVL)) * time.Second,
		Count:       get(unix.IPPROTO_TCP, unix.TCP_KEEPCNT),
		UserTimeout: time.Duration(get(unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)) * time.Millisecond,
	}
}

// KeepAliveOf returns the keep-alive options of a socket.
func KeepAliveOf(fd int) KeepAlive { return keepAliveOf(fd) }

// Set sets the keep-alive options of a socket, as far as the kernel takes them.
func (k KeepAlive) Set(fd int) {
	on := 0
	if k.Enable {
		on = 1
	}
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, on)
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(k.Idle/time.Second))
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(k.Interval/time.Second))
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, k.Count)
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(k.UserTimeout/time.Millisecond))
}
