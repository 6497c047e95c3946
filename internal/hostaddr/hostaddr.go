// Package hostaddr knows the addresses of this host, and when they have changed.
package hostaddr

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// loopback are the networks that every host has, whether its interfaces can be listed or not.
var loopback = []netip.Prefix{
	netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("::1/128"),
}

// Prefixes returns the loopback networks, and every other address of this host, each by itself.
// Where the host does not tell its addresses, the loopback networks are all. The slice is shared:
// do not modify it.
//
// Where changes can be watched, the addresses are not read again before there is one.
func Prefixes() ([]netip.Prefix, error) { return host.prefixes(), nil }

// Generation returns a number that changes with the addresses of this host, as soon as a new one
// can be used, or one that has left cannot any more. It costs a system call. It reports false
// where changes cannot be watched.
func Generation() (uint64, bool) { return host.watch.generation() }

// host is this one.
var host = cache{list: list}

// maxAge is how long addresses are kept that have not changed as far as the watch can tell, which
// does not follow a process into another network namespace.
const maxAge = 10 * time.Second

// cache remembers the addresses while they do not change.
type cache struct {
	list  func() []netip.Addr
	watch watch

	mu   sync.Mutex // held while they are read
	kept []netip.Prefix
	of   uint64 // the generation that was kept
	read time.Time
}

func (c *cache) prefixes() []netip.Prefix {
	c.mu.Lock()
	defer c.mu.Unlock()
	gen, watched := c.watch.generation()
	if watched && c.kept != nil && gen == c.of && time.Since(c.read) < maxAge {
		return c.kept
	}
	c.read = time.Now()
	c.kept, c.of = prefixesOf(c.list()), gen
	return c.kept
}

// prefixesOf returns the loopback networks and the addresses that are in none of them.
func prefixesOf(addrs []netip.Addr) []netip.Prefix {
	ps := slices.Clone(loopback)
	seen := make(map[netip.Addr]struct{}, len(addrs))
	for _, a := range addrs {
		a = a.Unmap().WithZone("")
		if _, known := seen[a]; known || !a.IsValid() || a.IsLoopback() {
			continue
		}
		seen[a] = struct{}{}
		ps = append(ps, netip.PrefixFrom(a, a.BitLen()))
	}
	return ps
}

// list reads the addresses: from the system, or from where else it tells them.
func list() []netip.Addr {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return listFiles()
	}
	var as []netip.Addr
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				as = append(as, ip)
			}
		}
	}
	return as
}
