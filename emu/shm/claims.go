//go:build linux

package shm

import (
	"net/netip"
	"time"
)

// localsTime is how long the addresses of this host are taken to be what they were, where one is missing.
const localsTime = 100 * time.Millisecond

// believable reports whether a dialer may have the address that it says it has: one of this host, of the family of the address that it
// dials. From another network namespace it may be any that is not bound to this one.
func (n *Node) believable(local, remote netip.Addr, w where) bool {
	switch {
	case local.Is4() != remote.Is4() || local.Is4In6() || local.IsUnspecified() || local.IsMulticast():
		return false
	case w == whereDir:
		return !local.IsLoopback() && !n.isLocal(local)
	case local.IsLoopback():
		return true
	}
	return n.isLocal(local)
}

// isLocal reports whether this host has the address.
func (n *Node) isLocal(ip netip.Addr) bool {
	ip = ip.WithZone("")
	n.mu.Lock()
	_, ok := n.locals[ip]
	stale := !ok && time.Since(n.asOf) > localsTime
	n.mu.Unlock()
	if !stale {
		return ok
	}
	all := ownAddrs()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.locals, n.asOf = all, time.Now()
	_, ok = all[ip]
	return ok
}
