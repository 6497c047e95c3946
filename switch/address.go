package sanswitch

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// destination is one address to dial.
type destination struct {
	addr  netip.AddrPort // never unspecified, never IPv4-mapped
	shown *net.TCPAddr   // as net has it, and as it stands in errors
}

// isUnspecified reports whether the program gave no address, or the unspecified one.
func (d destination) isUnspecified() bool { return d.shown.IP == nil || d.shown.IP.IsUnspecified() }

// is4 reports whether net counts the address among those of IPv4.
func (d destination) is4() bool { return d.shown.IP.To4() != nil }

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

// resolve finds out what address stands for on the TCP network, for a dial with the options of d:
// at least one destination, in the order of net, and with its errors. An empty host, or an
// unspecified one, is this host. A name is looked up once, whatever is dialed then.
func resolve(ctx context.Context, d *net.Dialer, network, address string) ([]destination, error) {
	if address == "" {
		return nil, errMissingAddress
	}
	ips, port, err := lookup(ctx, d.Resolver, network, address)
	if err != nil {
		return nil, err
	}
	if len(ips) == 0 {
		ips = []net.IPAddr{{}}
	}
	local, _ := d.LocalAddr.(*net.TCPAddr)
	var dests []destination
	for _, ip := range ips {
		if !sameFamily(local, ip.IP) {
			continue
		}
		shown := &net.TCPAddr{IP: ip.IP, Port: port, Zone: ip.Zone}
		dests = append(dests, destination{addr: dialedAddr(shown, network), shown: shown})
	}
	if len(dests) == 0 {
		return nil, &net.AddrError{Err: noSuitableAddress, Addr: local.String()}
	}
	return dests, nil
}

// noSuitableAddress is as in net, which does not export it.
const noSuitableAddress = "no suitable address found"

// sameFamily reports whether net dials ip from the local address.
func sameFamily(local *net.TCPAddr, ip net.IP) bool {
	if local == nil || unspecified(local.IP) || unspecified(ip) {
		return true
	}
	return (local.IP.To4() != nil) == (ip.To4() != nil)
}

func unspecified(ip net.IP) bool { return ip == nil || ip.IsUnspecified() }

// dialedAddr is the address that is meant by shown.
func dialedAddr(shown *net.TCPAddr, network string) netip.AddrPort {
	if unspecified(shown.IP) {
		return netip.AddrPortFrom(loopback(network), uint16(shown.Port))
	}
	ap := shown.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// loopback is the address that net dials in place of an unspecified one.
func loopback(network string) netip.Addr {
	if network == "tcp6" {
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// lookup returns the addresses and the port of address, which need not be a literal one. There
// are no addresses if it has no host.
func lookup(
	ctx context.Context, r *net.Resolver, network, address string,
) ([]net.IPAddr, int, error) {
	if r == nil {
		r = net.DefaultResolver
	}
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, 0, err
	}
	port, err := r.LookupPort(ctx, network, service)
	if err != nil || host == "" {
		return nil, port, err
	}
	ips, err := lookupHost(ctx, r, network, host)
	return ips, port, err
}

// lookupHost returns the addresses of host, at least one, of the families of the network, in the
// order of net. It asks for no other family, as net does not.
func lookupHost(ctx context.Context, r *net.Resolver, network, host string) ([]net.IPAddr, error) {
	family := "ip" + network[len("tcp"):]
	if _, err := netip.ParseAddr(host); err != nil && family != "ip" {
		ips, err := r.LookupIP(ctx, family, host)
		if err != nil {
			return nil, err
		}
		// It loses zones, which few addresses have, and none that is from DNS.
		if !slices.ContainsFunc(ips, net.IP.IsLinkLocalUnicast) {
			all := make([]net.IPAddr, len(ips))
			for i, ip := range ips {
				all[i].IP = ip
			}
			return all, nil
		}
	}
	ips, err := r.LookupIPAddr(ctx, host)
	if err != nil {
		return nil, err
	}
	if family == "ip4" && len(ips) == 1 && ips[0].IP.Equal(net.IPv6unspecified) {
		return []net.IPAddr{{IP: net.IPv4zero}}, nil // as net dials it where IPv6 alone fails
	}
	ips = slices.DeleteFunc(ips, func(ip net.IPAddr) bool {
		return family != "ip" && (family == "ip4") != (ip.IP.To4() != nil)
	})
	if len(ips) == 0 {
		return nil, &net.AddrError{Err: noSuitableAddress, Addr: host}
	}
	return ips, nil
}
