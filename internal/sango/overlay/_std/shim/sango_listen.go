// This file is added to package net by sango, see docs/sango.md of the library.

package net

import (
	"context"
	"internal/sango/san"
	"io"
	"os"
	"syscall"
)

// sangoTries is how many ports are tried, where any will do, to find one that is free on the SAN
// too.
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

// sangoListen has the socket be listened to on the SAN. look tells that its options may not be
// those that this package sets.
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
