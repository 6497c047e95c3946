package faulty

import (
	"context"
	"net/netip"

	"sansock/provider"
)

// Listener is another listener with hooks. It implements provider.RequestNotifier whether or not that does.
type Listener struct {
	provider.Listener
	On ListenerHooks

	made func(provider.Request) provider.Request // wraps one
}

// ListenerHooks take the place of methods of a Listener. With Accept, all requests go there.
type ListenerHooks struct {
	Accept func() (provider.Request, error)
	Close  func() error
}

// Accept implements provider.Listener.
func (l *Listener) Accept() (provider.Request, error) {
	accept := l.Listener.Accept
	if l.On.Accept != nil {
		accept = l.On.Accept
	}
	r, err := accept()
	if err != nil {
		return nil, err
	}
	return l.made(r), nil
}

// OnRequest implements provider.RequestNotifier.
func (l *Listener) OnRequest(take func(provider.Request)) {
	if n, ok := l.Listener.(provider.RequestNotifier); ok && l.On.Accept == nil {
		n.OnRequest(func(r provider.Request) { take(l.made(r)) })
	}
}

// Close implements provider.Listener.
func (l *Listener) Close() error {
	if l.On.Close != nil {
		return l.On.Close()
	}
	return l.Listener.Close()
}

// Request is another request with hooks. It implements provider.EarlyRequest, but where a hook takes the place of Accept.
type Request struct {
	provider.Request
	On RequestHooks

	endpoint func(ep provider.Endpoint, dialed bool) provider.Endpoint // wraps one
	early    func(dialed bool, begin func(provider.Endpoint) error, call func(func(provider.Endpoint) error) error) (provider.Endpoint, error)
}

// RequestHooks take the place of methods of a Request.
type RequestHooks struct {
	Accept    func(ctx context.Context) (provider.Endpoint, error)
	Reject    func(reason []byte) error
	LocalAddr func() netip.AddrPort
}

// Accept implements provider.Request.
func (r *Request) Accept(ctx context.Context) (provider.Endpoint, error) {
	accept := r.Request.Accept
	if r.On.Accept != nil {
		accept = r.On.Accept
	}
	ep, err := accept(ctx)
	if err != nil {
		return nil, err
	}
	return r.endpoint(ep, false), nil
}

// AcceptEarly implements provider.EarlyRequest.
func (r *Request) AcceptEarly(ctx context.Context, begin func(provider.Endpoint) error) (provider.Endpoint, error) {
	inner, ok := r.Request.(provider.EarlyRequest)
	if !ok {
		ep, err := r.Accept(ctx)
		return begun(ep, err, begin)
	}
	return r.early(false, begin, func(begin func(provider.Endpoint) error) error {
		_, err := inner.AcceptEarly(ctx, begin)
		return err
	})
}

// begun is the end of an early call where there is an endpoint already, unless there was an error.
func begun(ep provider.Endpoint, err error, begin func(provider.Endpoint) error) (provider.Endpoint, error) {
	if err != nil {
		return nil, err
	}
	if err := begin(ep); err != nil {
		ep.Close()
		return nil, err
	}
	return ep, nil
}

// Reject implements provider.Request.
func (r *Request) Reject(reason []byte) error {
	if r.On.Reject != nil {
		return r.On.Reject(reason)
	}
	return r.Request.Reject(reason)
}

// LocalAddr implements provider.Request.
func (r *Request) LocalAddr() netip.AddrPort {
	if r.On.LocalAddr != nil {
		return r.On.LocalAddr()
	}
	return r.Request.LocalAddr()
}
