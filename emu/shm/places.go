//go:build linux

package shm

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// place is a socket at which a listener may be met.
type place struct {
	name  string
	where where
}

// places are where a listener that serves a may be, the most specific first, and those of our own network before those of others.
func (n *Node) places(a netip.AddrPort) (ps []place) {
	for _, c := range candidates(a) {
		ps = append(ps, place{n.name(c), whereNetwork})
	}
	if n.Dir != "" && !a.Addr().IsLoopback() {
		ps = append(ps, place{n.path(a), whereDir})
	}
	return ps
}

// path is the socket of an address in the directory.
func (n *Node) path(a netip.AddrPort) string {
	space := strings.NewReplacer("/", "_", "\x00", "_").Replace(n.Space)
	return filepath.Join(n.Dir, "2"+space+"-"+a.String())
}

// enterDir makes the listener found in the directory, under each address that others can have for it.
func (r *Rendezvous) enterDir() error {
	if r.n.Dir == "" {
		return nil
	}
	dir, err := os.Open(r.n.Dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil { // another one is about to enter
		return err
	}
	for _, a := range reachable(r.addr) {
		l, err := listenPath(r.n.path(a))
		if err != nil {
			return err
		}
		r.ls = append(r.ls, listening{l, whereDir})
	}
	return nil
}

// listenPath listens at a path. A socket that a dead process has left there makes room. Who may use the directory may use the
// socket.
func listenPath(path string) (*net.UnixListener, error) {
	l, err := listenAt(path)
	if errors.Is(err, unix.EADDRINUSE) {
		c, cerr := net.Dial("unixpacket", path)
		if cerr == nil {
			c.Close()
			return nil, err
		}
		if !errors.Is(cerr, unix.ECONNREFUSED) || os.Remove(path) != nil {
			return nil, err
		}
		l, err = listenAt(path)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o666); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// reachable are the addresses by which another network namespace may reach a listener.
func reachable(a netip.AddrPort) (all []netip.AddrPort) {
	if !a.Addr().IsUnspecified() {
		if !a.Addr().IsLoopback() {
			all = append(all, a)
		}
		return all
	}
	for ip := range ownAddrs() {
		if !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && (a.Addr().Is6() || ip.Is4()) {
			all = append(all, netip.AddrPortFrom(ip, a.Port()))
		}
	}
	return all
}

// ownAddrs are the addresses of this host, without zones.
func ownAddrs() map[netip.Addr]struct{} {
	m := make(map[netip.Addr]struct{})
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return m
	}
	for _, a := range addrs {
		if x, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(x.IP); ok {
				m[ip.Unmap()] = struct{}{}
			}
		}
	}
	return m
}
