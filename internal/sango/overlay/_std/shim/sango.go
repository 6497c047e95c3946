// This file is added to package net by sango, see docs/sango.md of the library.

package net

import (
	"context"
	"internal/poll"
	sangohost "internal/sango/net"
	"internal/sango/san"
	"io"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// sangoFD is what a netFD has beside its socket: a connection over the SAN in its place, or a listener on the SAN beside it.
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

// doDialTCPProto dials over the SAN where it can.
func (sd *sysDialer) doDialTCPProto(ctx context.Context, laddr, raddr *TCPAddr, proto int) (*TCPConn, error) {
	if san.Off() {
		return sd.doDialTCPProtoPlain(ctx, laddr, raddr, proto)
	}
	local, remote, why := sangoAddrs(sd.network, laddr, raddr)
	if proto != 0 {
		why = "Multipath TCP"
	}
	if why != "" {
		c, err := sd.doDialTCPProtoPlain(ctx, laddr, raddr, proto)
		if err == nil {
			san.Plain("dial", local, remote, why)
		}
		return c, err
	}
	req := san.Request{Local: local, Remote: remote, Six: remote.Addr().Is6()}
	req.Control = sd.sangoControl(raddr, req.Six)
	req.TCP = func(ctx context.Context, control func(context.Context, syscall.RawConn) error) (io.Closer, error) {
		plain := *sd
		if control != nil {
			plain.Dialer.ControlContext = func(ctx context.Context, _, _ string, c syscall.RawConn) error {
				return control(ctx, c)
			}
		}
		c, err := plain.doDialTCPProtoPlain(ctx, laddr, raddr, proto)
		if err != nil {
			return nil, err
		}
		return c, nil
	}
	c, tcp, err := san.Dial(ctx, req)
	switch {
	case err != nil:
		return nil, err
	case c == nil:
		return tcp.(*TCPConn), nil
	}
	fd := sangoConn(c, sd.network)
	return newTCPConn(fd, sd.Dialer.KeepAlive, sd.Dialer.KeepAliveConfig, testPreHookSetKeepAlive, testHookSetKeepAlive), nil
}

// sangoControl returns the Control function of the dialer, nil if it has none.
func (sd *sysDialer) sangoControl(raddr *TCPAddr, six bool) func(context.Context, syscall.RawConn) error {
	network := "tcp4"
	if six {
		network = "tcp6"
	}
	if control := sd.Dialer.ControlContext; control != nil {
		return func(ctx context.Context, c syscall.RawConn) error { return control(ctx, network, raddr.String(), c) }
	}
	if control := sd.Dialer.Control; control != nil {
		return func(_ context.Context, c syscall.RawConn) error { return control(network, raddr.String(), c) }
	}
	return nil
}

// sangoAddrs returns the addresses of a dial, or why they are for TCP alone.
func sangoAddrs(network string, laddr, raddr *TCPAddr) (local, remote netip.AddrPort, why string) {
	const odd = "address for TCP alone"
	remote = raddr.AddrPort()
	a := remote.Addr()
	switch {
	case len(raddr.IP) == 0:
		a = netip.IPv4Unspecified()
		if network == "tcp6" {
			a = netip.IPv6Unspecified()
		}
	case !a.IsValid() || network == "tcp6" && (a.Is4() || a.Is4In6()):
		return local, remote, odd
	}
	if a = a.Unmap(); a == netip.IPv4Unspecified() {
		a = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	} else if a == netip.IPv6Unspecified() {
		a = netip.IPv6Loopback()
	}
	remote = netip.AddrPortFrom(a, uint16(raddr.Port))
	if network == "tcp4" && a.Is6() || raddr.Port < 0 || raddr.Port > 0xffff {
		return local, remote, odd
	}
	local = netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	if laddr != nil {
		la := laddr.AddrPort()
		local = netip.AddrPortFrom(la.Addr().Unmap(), la.Port())
		switch {
		case len(laddr.IP) == 0:
			local = netip.AddrPortFrom(netip.IPv6Unspecified(), la.Port())
		case network != "tcp" && local.Addr().Is4() != a.Is4():
			return local, remote, odd
		case !la.Addr().IsValid() || local.Addr().Is4() != a.Is4() && !local.Addr().IsUnspecified():
			return local, remote, odd
		}
	}
	return local, remote, ""
}

// sangoTries is how many ports are tried, where any will do, to find one that is free on the SAN too.
const sangoTries = 8

// listenTCPProto listens on the SAN as well.
func (sl *sysListener) listenTCPProto(ctx context.Context, laddr *TCPAddr, proto int) (*TCPListener, error) {
	for try := 1; ; try++ {
		ln, err := sl.listenTCPProtoPlain(ctx, laddr, proto)
		if err != nil || san.Off() {
			return ln, err
		}
		err = ln.fd.sangoListen(sl.ListenConfig.Control != nil)
		if err == nil || laddr.Port != 0 || try == sangoTries {
			return ln, nil
		}
		ln.fd.Close() // who dials us over the SAN would get another
	}
}

// fileListener listens on the SAN as well.
func fileListener(f *os.File) (Listener, error) {
	ln, err := fileListenerPlain(f)
	if ln, ok := ln.(*TCPListener); err == nil && ok && !san.Off() {
		ln.fd.sangoListen(true)
	}
	return ln, err
}

// sangoListen has the socket be listened to on the SAN. look tells that its options may not be those that this package sets.
func (fd *netFD) sangoListen(look bool) error {
	addr := fd.laddr.(*TCPAddr).AddrPort()
	six := fd.family == syscall.AF_INET6
	network := "tcp"
	if !six {
		network = "tcp4"
	} else if !addr.Addr().IsUnspecified() || fd.net == "tcp6" {
		network = "tcp6"
	}
	l, err := san.Listen(network, addr, sangoSocket{fd}, six, look)
	if l != nil {
		fd.sango = &sangoFD{listener: l}
	}
	return err
}

// sangoSocket is the socket of a listener.
type sangoSocket struct{ fd *netFD }

func (s sangoSocket) SyscallConn() syscall.RawConn { return newRawListener(s.fd) }

func (s sangoSocket) AcceptTCP() (io.Closer, error) {
	fd, err := s.fd.acceptPlain()
	if err != nil {
		return nil, err
	}
	return fd, nil
}

// accept takes what comes over either path.
func (fd *netFD) accept() (netfd *netFD, err error) {
	if fd.sango == nil || fd.sango.listener == nil {
		netfd, err = fd.acceptPlain()
	} else {
		var c *san.Conn
		var tcp io.Closer
		if c, tcp, err = fd.sango.listener.Accept(); c != nil {
			return sangoConn(c, fd.net), nil
		}
		netfd, _ = tcp.(*netFD)
	}
	if err != nil {
		return nil, err
	}
	if a, ok := netfd.laddr.(*TCPAddr); ok && !san.Off() && san.Tracing() {
		san.Accepted(a.AddrPort(), netfd.raddr.(*TCPAddr).AddrPort())
	}
	return netfd, nil
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
	fd.sango.mu.Lock()
	c := fd.sango.conn.Load()
	fd.sango.mu.Unlock()
	if c == nil {
		return false, nil
	}
	runtime.SetFinalizer(fd, nil)
	return true, c.Close()
}

// sangoLeave takes a connection off the SAN, as a program wants its socket, or a listener, whose socket another process gets.
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
	fd.pfd.Sysfd = d.FD
	if err := fd.pfd.Init(fd.net, true); err != nil {
		poll.CloseFunc(d.FD)
		return err
	}
	if !d.ReadDeadline.IsZero() {
		fd.pfd.SetReadDeadline(d.ReadDeadline)
	}
	if !d.WriteDeadline.IsZero() {
		fd.pfd.SetWriteDeadline(d.WriteDeadline)
	}
	fd.sango.conn.Store(nil)
	return nil
}

func (fd *netFD) sangoRead(c *san.Conn, p []byte) (int, error) {
	n, err := c.Read(p)
	runtime.KeepAlive(fd)
	return n, wrapSyscallError(readSyscallName, err)
}

func (fd *netFD) sangoWrite(c *san.Conn, p []byte) (int, error) {
	n, err := c.Write(p)
	runtime.KeepAlive(fd)
	return n, wrapSyscallError(writeSyscallName, err)
}

func (fd *netFD) sangoShutdown(c *san.Conn, how int) error {
	err := c.Shutdown(how)
	runtime.KeepAlive(fd)
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

// sangoDeadline is that of a listener, or of a connection over the SAN. done tells that nothing else is to be done.
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
	if read {
		err = &OpError{Op: "read", Net: c.fd.net, Source: c.fd.laddr, Addr: c.fd.raddr,
			Err: wrapSyscallError(readSyscallName, err)}
	}
	return n, err
}

// sangoRaw is the syscall.RawConn of a connection that was over the SAN when it was asked for.
type sangoRaw struct{ fd *netFD }

func (r sangoRaw) Control(f func(uintptr)) error {
	c := r.fd.san()
	if c == nil {
		return newRawConn(r.fd).Control(f)
	}
	err := c.Control(f)
	runtime.KeepAlive(r.fd)
	if err != nil {
		err = &OpError{Op: "raw-control", Net: r.fd.net, Source: nil, Addr: r.fd.laddr, Err: err}
	}
	return err
}

func (r sangoRaw) Read(f func(uintptr) bool) error {
	if c := r.fd.san(); c != nil {
		done, data, err := c.RawRead(f)
		if err == nil && !done {
			err = r.fd.sangoLeave(data)
		}
		runtime.KeepAlive(r.fd)
		if err != nil {
			return &OpError{Op: "raw-read", Net: r.fd.net, Source: r.fd.laddr, Addr: r.fd.raddr, Err: err}
		}
		if done {
			return nil
		}
	}
	return newRawConn(r.fd).Read(f)
}

func (r sangoRaw) Write(f func(uintptr) bool) error {
	if err := r.fd.sangoLeave(false); err != nil {
		return &OpError{Op: "raw-write", Net: r.fd.net, Source: r.fd.laddr, Addr: r.fd.raddr, Err: err}
	}
	return newRawConn(r.fd).Write(f)
}

// What the library needs of this package.
func init() {
	sangohost.Host.ListenUnix = func(network, name string) (sangohost.UnixListening, error) {
		l, err := ListenUnix(network, &UnixAddr{Net: network, Name: name})
		if err != nil {
			return nil, err
		}
		return sangoUnixListener{l}, nil
	}
	sangohost.Host.DialUnix = func(ctx context.Context, network, name string) (sangohost.UnixSocket, error) {
		c, err := new(Dialer).DialContext(ctx, network, name)
		if err != nil {
			return nil, err
		}
		return sangoUnix{c.(*UnixConn)}, nil
	}
	sangohost.Host.InterfaceAddrs = sangoInterfaceAddrs
}

func sangoInterfaceAddrs() (ps []netip.Prefix, err error) {
	addrs, err := InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				bits, _ := n.Mask.Size()
				ps = append(ps, netip.PrefixFrom(ip, bits))
			}
		}
	}
	return ps, err
}

type sangoUnix struct{ *UnixConn }

func (c sangoUnix) ReadMsg(b, oob []byte) (n, oobn, flags int, err error) {
	n, oobn, flags, _, err = c.ReadMsgUnix(b, oob)
	return n, oobn, flags, err
}

func (c sangoUnix) WriteMsg(b, oob []byte) (n, oobn int, err error) {
	return c.WriteMsgUnix(b, oob, nil)
}

type sangoUnixListener struct{ *UnixListener }

func (l sangoUnixListener) AcceptSocket() (sangohost.UnixSocket, error) {
	c, err := l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	return sangoUnix{c}, nil
}
