// Package beside lets a provider find the TCP listener beside which it listens. Who can show that socket listens where TCP would
// arrive; see package emu/shm.
package beside

import (
	"net/netip"
	"slices"
	"sync"
	"syscall"
)

// Socket is a TCP socket at an address.
type Socket struct {
	Addr netip.AddrPort
	Conn syscall.RawConn
}

var (
	mu      sync.Mutex
	sockets = make(map[uint16][]*Socket)
)

// Put notes a TCP listener, until remove is called.
func Put(addr netip.AddrPort, c syscall.RawConn) (remove func()) {
	s := &Socket{netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port()), c}
	mu.Lock()
	defer mu.Unlock()
	sockets[addr.Port()] = append(sockets[addr.Port()], s)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		left := slices.DeleteFunc(sockets[addr.Port()], func(x *Socket) bool { return x == s })
		if sockets[addr.Port()] = left; len(left) == 0 {
			delete(sockets, addr.Port())
		}
	}
}

// Find returns a listener that serves addr, nil if there is none: one at the address itself, or at all addresses.
func Find(addr netip.AddrPort) syscall.RawConn {
	mu.Lock()
	defer mu.Unlock()
	for _, s := range sockets[addr.Port()] {
		if ip := s.Addr.Addr(); ip == addr.Addr() || ip.IsUnspecified() && (ip.Is6() || addr.Addr().Is4()) {
			return s.Conn
		}
	}
	return nil
}
