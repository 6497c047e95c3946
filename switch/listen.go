package sanswitch

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"

	"sansock/internal/inline"
	"sansock/provider"
)

// portTries is how many ports Listen tries, where it may choose, to find one that is free on TCP and on every SAN.
const portTries = 8

// Listen announces on the local address, with the options of lc. Networks, addresses and errors are those of net, as for
// Dial.
//
// On "tcp" networks it opens the TCP listener first, and then one on every SAN that serves the address, with the same
// port; an unspecified address stands for all addresses of a SAN. A SAN that cannot listen does not matter: the routes of
// connections then tell why. On "san" networks the port is reserved on the SANs alone, of which the most
// preferred one chooses it if it is 0; TCP on the same port may be another's.
//
// A Control function sees the socket of the TCP listener. If it sets what is not on a SAN, as at
// Dial, the listener takes TCP alone. On "san" networks it is an error.
func (s *Switch) Listen(ctx context.Context, lc *net.ListenConfig, network, address string) (*Listener, error) {
	tcp, ok := tcpNetwork(network)
	switch {
	case !ok:
		ln, err := lc.Listen(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return plainListener(ln, network, Route{Path: PathOther, Reason: ReasonNetwork}), nil
	case isSAN(network):
		return s.listenSAN(ctx, lc, network, tcp, address)
	}
	return s.listenTCP(ctx, lc, network, address)
}

// listenTCP listens on a "tcp" network.
func (s *Switch) listenTCP(ctx context.Context, lc *net.ListenConfig, network, address string) (*Listener, error) {
	for try := 1; ; try++ {
		ln, err := lc.Listen(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if s.disabled() {
			route := Route{Path: PathTCP, Reason: ReasonDisabled, Err: s.whyDisabled()}
			return plainListener(ln, network, route), nil
		}
		if err := controlOfListener(lc, ln); err != nil {
			route := Route{Path: PathTCP, Reason: ReasonControl, Err: err}
			return plainListener(ln, network, route), nil
		}
		sans, why, err := s.listenSANs(ctx, network, ln.Addr().(*net.TCPAddr).AddrPort())
		// Another's port on the SAN is not a mere loss of speed: who dials us there would get that one.
		if errors.Is(err, syscall.EADDRINUSE) && anyPort(address) && try < portTries {
			closeAll(sans)
			ln.Close()
			continue
		}
		if len(sans) == 0 {
			return plainListener(ln, network, Route{Path: PathTCP, Reason: why, Err: err}), nil
		}
		route := Route{Path: PathTCP, Reason: ReasonPlainClient, Err: err}
		return s.newListener(network, network, ln, ln.Addr(), sans, route), nil
	}
}

// listenSAN listens on a "san" network.
func (s *Switch) listenSAN(ctx context.Context, lc *net.ListenConfig, network, tcp, address string) (*Listener, error) {
	fail := func(addr net.Addr, err error) (*Listener, error) {
		return nil, &net.OpError{Op: "listen", Net: network, Addr: addr, Err: err}
	}
	switch {
	case s.disabled():
		return fail(nil, s.errDisabled())
	case lc.Control != nil:
		return fail(nil, errNoSocket)
	}
	local, err := localAddress(ctx, tcp, address)
	if err != nil {
		return fail(nil, err)
	}
	sans, why, err := s.listenSANs(ctx, tcp, local)
	if errors.Is(err, syscall.EADDRINUSE) {
		closeAll(sans)
		sans, err = nil, os.NewSyscallError("bind", syscall.EADDRINUSE)
	} else if why == ReasonNoProvider {
		err = errNoProvider
	}
	if len(sans) == 0 {
		return fail(net.TCPAddrFromAddrPort(local), err)
	}
	bound := netip.AddrPortFrom(local.Addr(), sans[0].Addr().Port())
	return s.newListener(network, tcp, nil, net.TCPAddrFromAddrPort(bound), sans, Route{}), nil
}

// localAddress resolves an address to listen on.
func localAddress(ctx context.Context, tcp, address string) (netip.AddrPort, error) {
	unspecified := netip.IPv6Unspecified()
	if tcp == "tcp4" {
		unspecified = netip.IPv4Unspecified()
	}
	if address == "" {
		return netip.AddrPortFrom(unspecified, 0), nil
	}
	ips, n, err := lookup(ctx, nil, tcp, address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	port := uint16(n)
	if len(ips) == 0 {
		return netip.AddrPortFrom(unspecified, port), nil
	}
	at := ips[0]
	if i := slices.IndexFunc(ips, func(ip net.IPAddr) bool { return ip.IP.To4() != nil }); i >= 0 {
		at = ips[i] // as net does
	}
	a, _ := netip.AddrFromSlice(at.IP)
	return netip.AddrPortFrom(a.Unmap().WithZone(at.Zone), port), nil
}

// anyPort reports whether a port is to be chosen for the address.
func anyPort(address string) bool {
	_, port, _ := net.SplitHostPort(address)
	return port == "" || port == "0"
}

// sanListener is a listener of a provider.
type sanListener struct {
	provider.Listener
	name     string // the provider's
	provider provider.Provider
}

func closeAll(sans []sanListener) {
	for _, l := range sans {
		l.Close()
	}
}

// bind is a provider with the address to listen at.
type bind struct {
	way
	at netip.Addr
}

// binds returns where to listen for the address of this host, in order of preference. Unless the network is IPv6
// alone, :: includes IPv4, but a provider without any IPv6 address may not know of that.
func (s *Switch) binds(ctx context.Context, tcp string, local netip.Addr) ([]bind, error) {
	ways, err := s.table.serving(ctx, local, listenPatience)
	var found []bind
	for _, w := range ways {
		found = append(found, bind{w, local})
	}
	if local == netip.IPv6Unspecified() && tcp != "tcp6" {
		more, _ := s.table.serving(ctx, netip.IPv4Unspecified(), listenPatience)
		for _, w := range more {
			if !hasRank(ways, w.rank) {
				found = append(found, bind{w, netip.IPv4Unspecified()})
			}
		}
		slices.SortFunc(found, func(a, b bind) int { return cmp.Compare(a.rank, b.rank) })
	}
	if len(found) > 0 {
		err = nil
	}
	return found, err
}

// listenSANs listens at local on every SAN that serves it, all with the same port, and tells what kept it from
// listening on some.
func (s *Switch) listenSANs(
	ctx context.Context, tcp string, local netip.AddrPort,
) (sans []sanListener, why Reason, err error) {
	binds, err := s.binds(ctx, tcp, local.Addr().Unmap())
	if len(binds) == 0 {
		if err != nil {
			return nil, ReasonProviderFailed, err
		}
		return nil, ReasonNoProvider, nil
	}
	var errs []error
	port := local.Port()
	for _, b := range binds {
		l, err := b.provider.Listen(netip.AddrPortFrom(b.at, port), s.waiting)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		port = l.Addr().Port()
		sans = append(sans, sanListener{l, b.provider.Name(), b.provider})
	}
	if len(sans) > 0 {
		s.negatives.forget(port)
	}
	if len(errs) == 0 {
		return sans, ReasonSAN, nil
	}
	return sans, reasonOf(errs[0]), inline.Join(errs)
}
