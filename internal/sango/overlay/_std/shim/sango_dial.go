// This file is added to package net by sango, see docs/sango.md of the library.

package net

import (
	"context"
	"internal/sango/san"
	"io"
	"net/netip"
	"syscall"
)

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
	family, _ := favoriteAddrFamily(sd.network, laddr, raddr, "dial")
	req := san.Request{Local: local, Remote: remote, Six: family == syscall.AF_INET6}
	req.Control = sd.sangoControl(raddr, req.Six)
	type control = func(context.Context, syscall.RawConn) error
	req.TCP = func(ctx context.Context, control control) (io.Closer, error) {
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
	return newTCPConn(fd, sd.Dialer.KeepAlive, sd.Dialer.KeepAliveConfig,
		testPreHookSetKeepAlive, testHookSetKeepAlive), nil
}

// sangoControl returns the Control function of the dialer, nil if it has none.
func (sd *sysDialer) sangoControl(raddr *TCPAddr, six bool) func(context.Context, syscall.RawConn) error {
	network := "tcp4"
	if six {
		network = "tcp6"
	}
	if control := sd.Dialer.ControlContext; control != nil {
		return func(ctx context.Context, c syscall.RawConn) error {
			return control(ctx, network, raddr.String(), c)
		}
	}
	if control := sd.Dialer.Control; control != nil {
		return func(_ context.Context, c syscall.RawConn) error {
			return control(network, raddr.String(), c)
		}
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
