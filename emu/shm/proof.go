//go:build linux

package shm

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"sansock/internal/beside"
)

// Who listens for the SAN at an address has the port of TCP there: a listener of its own, or a socket that is bound to it. It
// shows that to who dials, by the descriptor, which only a process that has it can send. So nobody gets the dials of a service
// whose port he could not have taken.
//
// A descriptor can be used by who gets it, so that it is shown to processes of the same user only, which could take it anyway. Another
// user that is trusted to be dialed is taken at its word.

// where is where two processes meet.
type where uint8

const (
	whereNetwork where = iota // in their network namespace
	whereDir                  // in a directory
)

// spot is an address that is dialed, and where its listener is asked.
type spot struct {
	addr  netip.AddrPort
	where where
}

var errNoProof = errors.New("who listens there does not have the port")

// held is the TCP socket of a rendezvous.
type held struct {
	conn syscall.RawConn
	own  *os.File // nil: it is another's
}

// hold finds the TCP listener at addr, or takes the port.
func hold(addr netip.AddrPort) (held, error) {
	if c := beside.Find(addr); c != nil {
		return held{conn: c}, nil
	}
	fd, err := bindTCP(addr)
	if err != nil {
		return held{}, err
	}
	f := os.NewFile(uintptr(fd), "port")
	c, err := f.SyscallConn()
	return held{c, f}, err
}

// bindTCP returns a socket that is bound to addr, and does not share it.
func bindTCP(addr netip.AddrPort) (int, error) {
	var to unix.Sockaddr
	family := unix.AF_INET6
	if ip := addr.Addr(); ip.Is4() {
		family = unix.AF_INET
		to = &unix.SockaddrInet4{Port: int(addr.Port()), Addr: ip.As4()}
	} else {
		sa := &unix.SockaddrInet6{Port: int(addr.Port()), Addr: ip.As16()}
		if i, err := net.InterfaceByName(ip.Zone()); err == nil {
			sa.ZoneId = uint32(i.Index)
		}
		to = sa
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_TCP)
	if err == unix.EAFNOSUPPORT && addr.Addr() == netip.IPv6Unspecified() {
		return bindTCP(netip.AddrPortFrom(netip.IPv4Unspecified(), addr.Port()))
	}
	if err != nil {
		return -1, err
	}
	if family == unix.AF_INET6 && addr.Addr().IsUnspecified() {
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
	}
	if err = unix.Bind(fd, to); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (h *held) close() {
	if h.own != nil {
		h.own.Close()
	}
}

// send sends an offer with descriptors and, to a peer of our own user, the proof that we listen.
func (h *held) send(conn *net.UnixConn, o *offer, files []int) (err error) {
	peer, err := connected(conn)
	if err != nil {
		return err
	}
	if h.conn == nil || peer.UID != uint32(os.Geteuid()) {
		return sendOffer(conn, o, files)
	}
	o.proof = proofSocket
	cerr := h.conn.Control(func(fd uintptr) {
		err = sendOffer(conn, o, append(files[:len(files):len(files)], int(fd)))
	})
	return errors.Join(cerr, err)
}

// proven checks the proof that comes with an offer of a process that listens there, and returns the other descriptors.
func (n *Node) proven(o *offer, files []int, peer Peer, at spot) ([]int, error) {
	if o.proof == proofNone {
		if peer.UID != uint32(os.Geteuid()) {
			return files, nil
		}
		return files, stranger{errNoProof}
	}
	last := len(files) - 1
	if last < 0 {
		return files, errWire
	}
	if err := serves(files[last], at); err != nil {
		return files, err
	}
	unix.Close(files[last]) // a socket without a connection, which does not linger
	return files[:last], nil
}

// serves reports whether fd is a TCP socket that has a port to which connections for an address go, or would go if it listened.
func serves(fd int, at spot) error {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_STREAM {
		return stranger{errNoProof}
	}
	protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err != nil || protocol != unix.IPPROTO_TCP && protocol != unix.IPPROTO_MPTCP { // net listens for both
		return stranger{errNoProof}
	}
	if v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil {
		return stranger{errNoProof}
	} else if _, err := unix.Getpeername(fd); v == 0 && err != unix.ENOTCONN { // a connection has a port, too
		return stranger{errNoProof}
	}
	name, err := unix.Getsockname(fd)
	if err != nil || !covers(fd, name, at.addr) {
		return stranger{errNoProof}
	}
	if at.where == whereNetwork {
		if c, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE); err == nil && c != ourNetwork() {
			return stranger{errNoProof}
		}
	}
	return nil
}

// covers reports whether a socket that is bound to name gets what is for a.
func covers(fd int, name unix.Sockaddr, a netip.AddrPort) bool {
	switch s := name.(type) {
	case *unix.SockaddrInet4:
		ip := netip.AddrFrom4(s.Addr)
		return s.Port == int(a.Port()) && a.Addr().Is4() && (ip == a.Addr() || ip.IsUnspecified())
	case *unix.SockaddrInet6:
		ip := netip.AddrFrom16(s.Addr).Unmap()
		if s.Port != int(a.Port()) {
			return false
		}
		if !ip.IsUnspecified() {
			return ip == a.Addr().WithZone("")
		}
		if a.Addr().Is6() {
			return true
		}
		only, err := unix.GetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY)
		return err == nil && only == 0
	}
	return false
}

// ourNetwork is the network namespace of this thread, 0 if the kernel does not say.
func ourNetwork() uint64 {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	c, _ := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	return c
}
