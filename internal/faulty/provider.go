// Package faulty wraps a provider, for tests, so that it fails, lies or waits where it is told to.
//
// A hook takes the place of the method of its name. It goes on with the wrapped provider, which is
// embedded under the name of its interface:
//
//	p := faulty.New(inner)
//	p.OnEndpoint = func(e *faulty.Endpoint) provider.Endpoint {
//		e.On.PostSend = func(s provider.Send) error {
//			if full() {
//				return provider.StatusQueueFull
//			}
//			return e.Endpoint.PostSend(s)
//		}
//		return e
//	}
//
// Hooks are set before what they are for is used. The wrapper counts what is left open, and can report
// completions that the wrapped provider knows nothing of.
//
// # Layers
//
//	uses.go        what is counted
//	endpoint.go    what is posted, and what completes
//	listener.go    connection requests
//	provider.go    the provider itself
package faulty

import (
	"context"
	"net/netip"

	"sansock/provider"
)

// Provider is another provider with hooks. It implements provider.EarlyDialer whether or not that does.
type Provider struct {
	provider.Provider
	On ProviderHooks

	// OnEndpoint is called with every endpoint before anybody else knows it, and returns what the user gets.
	OnEndpoint func(e *Endpoint) provider.Endpoint

	// OnListener and OnRequest are called likewise.
	OnListener func(l *Listener)
	OnRequest  func(r *Request)

	uses uses
}

// ProviderHooks take the place of methods of a Provider. Dial is also for DialEarly, which begins
// afterwards then.
type ProviderHooks struct {
	Name       func() string
	Attributes func() provider.Attributes
	Prefixes   func() ([]netip.Prefix, error)
	Dial       func(ctx context.Context, local, remote netip.AddrPort) (provider.Endpoint, error)
	Listen     func(local netip.AddrPort, backlog int) (provider.Listener, error)
	Close      func() error
}

// New returns a Provider that does what p does.
func New(p provider.Provider) *Provider { return &Provider{Provider: p} }

// Uses returns what the provider has been asked for, and has in use.
func (p *Provider) Uses() Uses { return p.uses.add(Uses{}) }

// Name implements provider.Provider.
func (p *Provider) Name() string {
	if p.On.Name != nil {
		return p.On.Name()
	}
	return p.Provider.Name()
}

// Attributes implements provider.Provider.
func (p *Provider) Attributes() provider.Attributes {
	if p.On.Attributes != nil {
		return p.On.Attributes()
	}
	return p.Provider.Attributes()
}

// Prefixes implements provider.Provider.
func (p *Provider) Prefixes() ([]netip.Prefix, error) {
	if p.On.Prefixes != nil {
		return p.On.Prefixes()
	}
	return p.Provider.Prefixes()
}

// Dial implements provider.Provider.
func (p *Provider) Dial(ctx context.Context, local, remote netip.AddrPort) (provider.Endpoint, error) {
	p.uses.add(Uses{Dials: 1})
	dial := p.Provider.Dial
	if p.On.Dial != nil {
		dial = p.On.Dial
	}
	ep, err := dial(ctx, local, remote)
	if err != nil {
		return nil, err
	}
	return p.endpoint(ep, true), nil
}

// DialEarly implements provider.EarlyDialer.
func (p *Provider) DialEarly(ctx context.Context, local, remote netip.AddrPort, begin func(provider.Endpoint) error) (provider.Endpoint, error) {
	early, ok := p.Provider.(provider.EarlyDialer)
	if !ok || p.On.Dial != nil {
		ep, err := p.Dial(ctx, local, remote)
		return begun(ep, err, begin)
	}
	p.uses.add(Uses{Dials: 1})
	return p.early(true, begin, func(begin func(provider.Endpoint) error) error {
		_, err := early.DialEarly(ctx, local, remote, begin)
		return err
	})
}

// early has call begin with an endpoint of ours, the last one if it tries several, and returns that.
func (p *Provider) early(dialed bool, begin func(provider.Endpoint) error, call func(begin func(provider.Endpoint) error) error) (provider.Endpoint, error) {
	var mine provider.Endpoint
	err := call(func(ep provider.Endpoint) error {
		if mine != nil {
			mine.Close() // the provider has given it up
		}
		mine = p.endpoint(ep, dialed)
		return begin(mine)
	})
	if err != nil {
		if mine != nil {
			mine.Close()
		}
		return nil, err
	}
	return mine, nil
}

// endpoint wraps an endpoint.
func (p *Provider) endpoint(ep provider.Endpoint, dialed bool) provider.Endpoint {
	e := newEndpoint(ep, dialed, &p.uses)
	if p.OnEndpoint != nil {
		return p.OnEndpoint(e)
	}
	return e
}

// Listen implements provider.Provider.
func (p *Provider) Listen(local netip.AddrPort, backlog int) (provider.Listener, error) {
	listen := p.Provider.Listen
	if p.On.Listen != nil {
		listen = p.On.Listen
	}
	inner, err := listen(local, backlog)
	if err != nil {
		return nil, err
	}
	l := &Listener{Listener: inner, made: p.request}
	if p.OnListener != nil {
		p.OnListener(l)
	}
	return l, nil
}

// request wraps a request.
func (p *Provider) request(inner provider.Request) provider.Request {
	r := &Request{Request: inner, endpoint: p.endpoint, early: p.early}
	if p.OnRequest != nil {
		p.OnRequest(r)
	}
	if r.On.Accept != nil {
		return struct{ provider.Request }{r} // the hook may wait, as an EarlyRequest must not
	}
	return r
}

// Close implements provider.Provider.
func (p *Provider) Close() error {
	if p.On.Close != nil {
		return p.On.Close()
	}
	return p.Provider.Close()
}
