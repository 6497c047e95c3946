package sanswitch

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
)

// DialAddr is Dial to one address for a caller with a way of its own to dial over TCP, tcp, who
// has checked that options allow the SAN. The local address may be unspecified, or its port 0.
// Errors are bare: that of tcp, or one that TCP would fail with too.
func (s *Switch) DialAddr(ctx context.Context, local, remote netip.AddrPort,
	tcp func(context.Context) (net.Conn, error)) (Result, error) {
	if !local.Addr().IsValid() {
		local = netip.AddrPortFrom(netip.IPv6Unspecified(), local.Port())
	}
	plain := func(ctx context.Context, r Route) (Result, error) {
		c, err := tcp(ctx)
		if err != nil {
			return Result{}, err
		}
		return Result{Conn: c, Route: r}, nil
	}
	if s.disabled() {
		return plain(ctx, Route{Path: PathTCP, Reason: ReasonDisabled, Err: s.whyDisabled()})
	}
	d := new(net.Dialer)
	if local.Port() != 0 || !local.Addr().IsUnspecified() {
		d.LocalAddr = net.TCPAddrFromAddrPort(local)
	}
	dst := destination{addr: remote, shown: net.TCPAddrFromAddrPort(remote)}
	c := s.newCall(ctx, d, "tcp", []destination{dst})
	c.tcp = func(ctx context.Context, _ destination) (Result, error) {
		return plain(ctx, Route{Path: PathTCP})
	}
	c.look(ctx, func(ctx context.Context, dst destination) ([]way, Reason, error) {
		return s.choose(ctx, dst, local, c.lead)
	})
	res, err := c.run(ctx)
	if f, ok := err.(*failure); ok {
		return Result{}, f.final
	}
	return res, err
}

// Beside listens for sessions on every SAN that serves addr, where the caller listens over TCP by
// itself. It fails with syscall.EADDRINUSE where another has the port on a SAN; the route tells
// why there is no SAN where the Listener is nil.
func (s *Switch) Beside(network string, addr netip.AddrPort) (*Listener, Route, error) {
	if s.disabled() {
		return nil, Route{Path: PathTCP, Reason: ReasonDisabled, Err: s.whyDisabled()}, nil
	}
	sans, why, err := s.listenSANs(context.Background(), network, addr)
	route := Route{Path: PathTCP, Reason: why, Err: err}
	if errors.Is(err, syscall.EADDRINUSE) {
		closeAll(sans)
		return nil, route, syscall.EADDRINUSE
	}
	if len(sans) == 0 {
		return nil, route, nil
	}
	route = Route{Path: PathSAN, Provider: sans[0].name, Reason: ReasonSAN}
	at := net.TCPAddrFromAddrPort(addr)
	return s.newListener(network, network, nil, at, sans, Route{}), route, nil
}
