package sanswitch

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// DialAddr is Dial to one address for a caller with a way of its own to dial over TCP, tcp, who
// has checked that options allow the SAN. The local address may be unspecified, or its port 0.
// Errors are bare: that of tcp, or one that TCP would fail with too.
func (s *Switch) DialAddr(ctx context.Context, local, remote netip.AddrPort,
	tcp func(context.Context) (net.Conn, error)) (Result, error) {
	if !local.Addr().IsValid() {
		local = netip.AddrPortFrom(netip.IPv6Unspecified(), local.Port())
	}
	t := target{dests: []destination{{addr: remote}}}
	plain := func(ctx context.Context, r Route) (Result, error) {
		c, err := tcp(ctx)
		if err != nil {
			return Result{}, err
		}
		return Result{Conn: c, Route: r}, nil
	}
	if s.disabled() {
		return plain(ctx, Route{Path: PathTCP, Reason: ReasonDisabled})
	}
	dst, ways, why, err := s.choose(t, local)
	if err == nil && len(ways) > 0 {
		if err = s.negatives.get(remote); err != nil {
			ways, why = nil, ReasonCached
		}
	}
	if len(ways) == 0 {
		return plain(ctx, Route{Path: PathTCP, Reason: why, Peer: peerReasonOf(err), Err: err})
	}
	a := &attempt{session: s.session, dst: dst.addr, ways: ways, local: local}
	r := race{
		san:    a.run,
		tcp:    func(ctx context.Context) (Result, error) { return plain(ctx, Route{Path: PathTCP}) },
		lead:   shorten(s.lead, ctx),
		single: true,
		abort:  Result.drop,
	}
	a.reached = r.reached
	if !prompt(ways) {
		r.san = promptly(a.run, r.abort)
	}
	began := time.Now()
	res, sanErr, err := r.run(ctx)
	var f *failure
	if errors.As(sanErr, &f) && err == f {
		return Result{}, f.final
	}
	return s.judge("tcp", nil, dst, began, res, sanErr, err)
}

// Beside listens for sessions on every SAN that serves addr, where the caller listens over TCP by
// itself. It fails with syscall.EADDRINUSE where another has the port on a SAN; the route tells
// why there is no SAN where the Listener is nil.
func (s *Switch) Beside(network string, addr netip.AddrPort) (*Listener, Route, error) {
	if s.disabled() {
		return nil, Route{Path: PathTCP, Reason: ReasonDisabled}, nil
	}
	sans, why, err := s.listenSANs(network, addr)
	route := Route{Path: PathTCP, Reason: why, Err: err}
	if errors.Is(err, syscall.EADDRINUSE) {
		closeAll(sans)
		return nil, route, syscall.EADDRINUSE
	}
	if len(sans) == 0 {
		return nil, route, nil
	}
	route = Route{Path: PathSAN, Provider: sans[0].name, Reason: ReasonSAN}
	return s.newListener(network, nil, net.TCPAddrFromAddrPort(addr), sans, Route{}), route, nil
}
