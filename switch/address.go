package sanswitch

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
)

// destination is one address to dial.
type destination struct {
	addr  netip.AddrPort // never unspecified, never IPv4-mapped
	shown *net.TCPAddr   // as it stands in errors
}

// isUnspecified reports whether the program gave no address, or the unspecified one.
func (d destination) isUnspecified() bool { return d.shown.IP == nil || d.shown.IP.IsUnspecified() }

// target is what an address given to Dial stands for.
type target struct {
	dests []destination // in the order in which net tries them, at least one
	tcp   string        // the address to give to net, so that it need not resolve a single name again
}

// errMissingAddress is as in net, which does not export it.
var errMissingAddress = errors.New("missing address")

// isSAN reports whether the network is one of those without a path over TCP.
func isSAN(network string) bool { return strings.HasPrefix(network, "san") }

// tcpNetwork returns the network of net with the addresses of ours, and whether there is one.
func tcpNetwork(network string) (string, bool) {
	switch network {
	case "tcp", "tcp4", "tcp6":
		return network, true
	case "san", "san4", "san6":
		return "tcp" + network[len("san"):], true
	}
	return "", false
}

// hasFamily reports whether the TCP network has addresses of the family of a.
func hasFamily(tcp string, a netip.Addr) bool {
	switch tcp {
	case "tcp4":
		return a.Unmap().Is4()
	case "tcp6":
		return !a.Unmap().Is4()
	}
	return true
}

// resolve finds out what address stands for on the TCP network, with the results and errors of net. An empty
// host, or an unspecified one, is this host.
func resolve(ctx context.Context, r *net.Resolver, network, address string) (target, error) {
	t := target{tcp: address}
	if address == "" {
		return t, errMissingAddress
	}
	addrs, port, err := lookup(ctx, r, network, address)
	if err != nil {
		return t, err
	}
	if len(addrs) == 0 {
		a := netip.AddrPortFrom(loopback(network), port)
		t.dests = []destination{{addr: a, shown: &net.TCPAddr{Port: int(port)}}}
		return t, nil
	}
	for _, a := range addrs {
		ap := netip.AddrPortFrom(a, port)
		d := destination{addr: ap, shown: net.TCPAddrFromAddrPort(ap)}
		if a.IsUnspecified() {
			d.addr = netip.AddrPortFrom(loopback(network), port)
		} else if len(addrs) == 1 {
			t.tcp = ap.String()
		}
		t.dests = append(t.dests, d)
	}
	return t, nil
}

// loopback is the address that net dials in place of an unspecified one.
func loopback(network string) netip.Addr {
	if network == "tcp6" {
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// lookup returns the addresses, without IPv4-mapped ones, and the port of address, which need not be a literal one.
// There are no addresses if it has no host.
func lookup(ctx context.Context, r *net.Resolver, network, address string) ([]netip.Addr, uint16, error) {
	if r == nil {
		r = net.DefaultResolver
	}
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, 0, err
	}
	port, err := r.LookupPort(ctx, network, service)
	if err != nil || host == "" {
		return nil, uint16(port), err
	}
	if a, err := netip.ParseAddr(host); err == nil && hasFamily(network, a) {
		return []netip.Addr{a.Unmap()}, uint16(port), nil // LookupNetIP would lose the zone
	}
	addrs, err := r.LookupNetIP(ctx, "ip"+network[len("tcp"):], host)
	for i, a := range addrs {
		addrs[i] = a.Unmap()
	}
	return addrs, uint16(port), err
}
