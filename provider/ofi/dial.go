//go:build ofi && cgo && linux

package ofi

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"sansock/provider"
)

// dialTimeout bounds a Dial whose context does not.
const dialTimeout = 20 * time.Second

// Dial implements provider.Provider.
func (p *Provider) Dial(ctx context.Context, local, remote netip.AddrPort) (provider.Endpoint, error) {
	if err := ctx.Err(); err != nil {
		return nil, p.ended("dial", err)
	}
	select {
	case <-p.done:
		return nil, p.failure("dial", provider.StatusClosed, nil)
	default:
	}
	local, remote = clean(local), p.destination(clean(remote))
	in, src, err := p.source(local, remote)
	if err != nil {
		return nil, err
	}
	c, err := in.with(src, netip.AddrPortFrom(remote.Addr(), p.carrier(remote.Port())))
	if err != nil {
		return nil, p.failure("dial", provider.StatusNoMemory, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout, errSilent)
	defer cancel()
	e, err := p.dialing(ctx, c, in)
	if err != nil {
		return nil, err
	}
	// c is freed with the attempt, which may outlive us.
	if err := e.dial(ctx, c, private{kind: kindRequest, dialed: remote.Port(), local: local.Port()}); err != nil {
		e.Close()
		freeInfo(c)
		return nil, err
	}
	freeInfo(c)
	e.remote = remote
	e.local = clean(e.bound)
	if local.Port() != 0 {
		e.local = netip.AddrPortFrom(e.local.Addr(), local.Port())
	}
	return e, nil
}

// destination makes the unspecified address mean this host, as it does for TCP.
func (p *Provider) destination(remote netip.AddrPort) netip.AddrPort {
	if a := remote.Addr(); a.IsUnspecified() {
		if i := p.toward(loopback(a)); i != nil {
			return netip.AddrPortFrom(i.addr, remote.Port())
		}
	}
	return remote
}

func loopback(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// source chooses the device for a connection, and the address to bind it to, invalid if that is the fabric's choice.
func (p *Provider) source(local, remote netip.AddrPort) (*info, netip.AddrPort, error) {
	in := p.toward(remote.Addr())
	if in == nil || !remote.IsValid() {
		return nil, local, p.failure("dial", provider.StatusNoListener, nil)
	}
	port := p.carrier(local.Port())
	if a := local.Addr(); a.IsValid() && !a.IsUnspecified() {
		if in = p.at(a); in == nil || a.Is4() != remote.Addr().Is4() {
			return nil, local, p.failure("dial", provider.StatusAddrNotAvail, nil)
		}
		return in, netip.AddrPortFrom(a, port), nil
	}
	switch {
	case p.kind != fabricTCP:
		return in, netip.AddrPortFrom(in.addr, port), nil // the device is known by its address
	case port == 0:
		return in, netip.AddrPort{}, nil
	case remote.Addr().Is4():
		return in, netip.AddrPortFrom(netip.IPv4Unspecified(), port), nil
	default:
		return in, netip.AddrPortFrom(netip.IPv6Unspecified(), port), nil
	}
}

// dialing makes the endpoint for a Dial. The library resolves the address meanwhile, which on verbs may take two seconds
// if nobody answers. When ctx ends before, that goes on in the background and is then undone.
func (p *Provider) dialing(ctx context.Context, c *cInfo, in *info) (*endpoint, error) {
	type result struct {
		e   *endpoint
		err error
	}
	made := make(chan result, 1)
	go func() {
		e, err := p.newEndpoint("dial", c, in)
		made <- result{e, err}
	}()
	select {
	case r := <-made:
		if r.err != nil {
			freeInfo(c)
		}
		return r.e, r.err
	case <-ctx.Done():
		go func() {
			if r := <-made; r.err == nil {
				r.e.Close()
			}
			freeInfo(c)
		}()
		return nil, p.expired("dial", ctx)
	}
}

// dial connects to the address in c.
func (e *endpoint) dial(ctx context.Context, c *cInfo, data private) error {
	p := e.prov
	if err := e.fab.with(e, func() error { return e.c.connect(c, data.encode()) }); err != nil {
		return p.dialError(err)
	}
	ev, err := e.connected(ctx, "dial")
	if err != nil {
		return err
	}
	answer, ours := decodePrivate(ev.data)
	switch {
	case ev.what == eventConnected && ours && answer.kind == kindAccept:
		return nil
	case ev.what == eventConnected, ours && answer.kind == kindNone:
		return p.failure("dial", provider.StatusNoListener, nil) // somebody else's
	case ours && answer.kind == kindRefuse:
		return &provider.Error{Provider: name, Op: "dial", Status: provider.StatusRefused, Reason: slices.Clone(answer.reason)}
	case ours && answer.kind == kindFailed, ev.what == eventShutdown:
		return p.failure("dial", provider.StatusLink, nil)
	}
	return p.dialError(&fabricError{"connect", ev.code})
}

// connected waits for the fabric's word on the connection.
func (e *endpoint) connected(ctx context.Context, op string) (event, error) {
	p := e.prov
	select {
	case ev := <-e.news:
		return ev, nil
	case <-ctx.Done():
		return event{}, p.expired(op, ctx)
	case <-p.done:
		return event{}, p.failure(op, provider.StatusClosed, nil)
	}
}

// expired makes the error of an operation whose context, with our own limit in it, has ended.
func (p *Provider) expired(op string, ctx context.Context) error {
	if err := context.Cause(ctx); err == errSilent {
		return p.failure(op, provider.StatusTimeout, err)
	}
	return p.ended(op, ctx.Err())
}

// dialError makes the error of a connection that the fabric could not make.
func (p *Provider) dialError(err error) error {
	return p.failure("dial", connectStatus(p.kind, codeOf(err)), err)
}
