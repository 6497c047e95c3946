package emu

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"time"

	"sansock/provider"
)

// Dial implements provider.Provider.
func (p *Provider) Dial(ctx context.Context, local, remote netip.AddrPort) (provider.Endpoint, error) {
	return p.DialEarly(ctx, local, remote, func(provider.Endpoint) error { return nil })
}

// DialEarly implements provider.EarlyDialer.
func (p *Provider) DialEarly(ctx context.Context, local, remote netip.AddrPort, begin func(provider.Endpoint) error) (provider.Endpoint, error) {
	if err := p.step(StepDial, "dial"); err != nil {
		return nil, err
	}
	e, err := p.dial(ctx, clean(local), clean(remote), begin)
	if err != nil {
		return nil, err
	}
	err = p.step(StepDialComplete, "dial")
	here, ok := e.(*endpoint)
	if err == nil && ok {
		err = p.roundTrip(ctx, here)
	}
	if err != nil {
		e.Close()
		return nil, err
	}
	if !ok {
		return e, nil
	}
	face := here.face()
	if err := begin(face); err != nil {
		face.Close()
		return nil, err
	}
	return face, nil
}

// dial returns an *endpoint, or one that is connected to another process.
func (p *Provider) dial(ctx context.Context, local, remote netip.AddrPort, begin func(provider.Endpoint) error) (provider.Endpoint, error) {
	if err := ctx.Err(); err != nil {
		return nil, p.ended("dial", err)
	}
	select {
	case <-p.done:
		return nil, p.failure("dial", provider.StatusClosed)
	default:
	}
	remote = reached(remote)
	l := p.fabric.find(remote)
	if l == nil && p.node == nil {
		return nil, p.failure("dial", provider.StatusNoListener)
	}
	local, err := p.from(local, remote)
	if err != nil {
		return nil, err
	}
	if l == nil {
		return p.cross(ctx, local, remote, begin)
	}
	if local, err = p.fabric.pickUp(local, remote); err != nil {
		return nil, p.failure("dial", provider.StatusOf(err))
	}
	r := &request{dialer: p, to: l, local: remote, remote: local, answer: make(chan answer, 1)}
	if err := l.enqueue(r); err != nil {
		p.fabric.putDown(local, remote)
		return nil, p.failure("dial", provider.StatusOf(err))
	}
	e, connected, err := p.await(ctx, r)
	if e != nil {
		return e, nil
	}
	if !connected {
		p.fabric.putDown(local, remote)
	}
	return nil, err
}

// reached is the address that remote stands for: as for TCP, the unspecified one means this host.
func reached(remote netip.AddrPort) netip.AddrPort {
	switch remote.Addr() {
	case netip.IPv4Unspecified():
		return netip.AddrPortFrom(loopback4, remote.Port())
	case netip.IPv6Unspecified():
		return netip.AddrPortFrom(netip.IPv6Loopback(), remote.Port())
	}
	return remote
}

var loopback4 = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// from is the address that remote is dialed from, if local does not say. The emulated SAN stays on
// this host, where an address is reached from itself, except that all of 127.0.0.0/8 is reached
// from the first one.
func (p *Provider) from(local, remote netip.AddrPort) (netip.AddrPort, error) {
	if !local.Addr().IsValid() || local.Addr().IsUnspecified() {
		from := remote.Addr()
		if from.Is4() && from.IsLoopback() {
			from = loopback4
		}
		return netip.AddrPortFrom(from, local.Port()), nil
	}
	ok, err := p.serves(local.Addr())
	if err != nil || !ok || local.Addr().Is4() != remote.Addr().Is4() {
		return local, p.failure("dial", provider.StatusAddrNotAvail)
	}
	return local, nil
}

// await waits for the answer to r. Where there is no endpoint, connected says that there was one
// for a moment, whose Close has given the addresses back.
func (p *Provider) await(ctx context.Context, r *request) (e *endpoint, connected bool, err error) {
	select {
	case a := <-r.answer:
		return a.ep, false, a.err
	case <-ctx.Done():
		err = p.ended("dial", ctx.Err())
	case <-p.done:
		err = p.failure("dial", provider.StatusClosed)
	}
	if r.take() {
		r.to.withdraw(r)
	} else if late := <-r.answer; late.ep != nil {
		// Accepted at the same moment: the connection is there, and the other end hears that it is
		// over.
		late.ep.Close()
		connected = true
	}
	return nil, connected, err
}

// roundTrip waits as long as a request and its answer take on the links of e.
func (p *Provider) roundTrip(ctx context.Context, e *endpoint) error {
	if e.egress() == nil {
		return nil
	}
	t := time.NewTimer(e.egress().Latency + e.peer.egress().Latency)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return p.ended("dial", ctx.Err())
	case <-p.done:
		return p.failure("dial", provider.StatusClosed)
	}
}

// connect makes both ends of a connection.
func connect(dialer, listener *Provider, from, to netip.AddrPort) (*endpoint, *endpoint) {
	c := &conn{addr: [2]netip.AddrPort{from, to}, fab: dialer.fabric}
	c.open.Store(2)
	for i, p := range [2]*Provider{dialer, listener} {
		e := &c.ends[i]
		e.peer, e.conn, e.prov, e.attr = &c.ends[1-i], c, p, &p.attr
		e.table.Salt, e.slow = rand.Uint64(), newSlow(p.slow, e)
	}
	if dialer.link.shaped() || listener.link.shaped() {
		for i, p := range [2]*Provider{dialer, listener} {
			c.links[i] = newLink(p.link, &c.ends[i])
		}
	}
	for i := range c.ends {
		c.ends[i].prov.remember(&c.ends[i])
	}
	return &c.ends[0], &c.ends[1]
}
