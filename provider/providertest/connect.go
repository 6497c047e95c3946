package providertest

import (
	"context"
	"errors"
	"net/netip"

	"sansock/provider"
)

// attempt is a Dial under way.
type attempt struct {
	x    *rig
	done chan struct{}
	ep   provider.Endpoint
	err  error
}

// dial begins a Dial. It ends with the rule, if not before.
func (x *rig) dial(ctx context.Context, local, remote netip.AddrPort) *attempt {
	a := &attempt{x: x, done: make(chan struct{})}
	x.loose.Go(func() {
		defer close(a.done)
		defer x.rescue()
		a.ep, a.err = x.dialer.Dial(ctx, local, remote)
	})
	x.cleanup(func() {
		if <-a.done; a.ep != nil {
			a.ep.Close()
		}
	})
	return a
}

// dialTo is a Dial of nothing special.
func (x *rig) dialTo(remote netip.AddrPort) *attempt { return x.dial(x.ctx, netip.AddrPort{}, remote) }

// wait waits for the end of a Dial.
func (a *attempt) wait() (provider.Endpoint, error) {
	a.x.bounded("Dial", func() { <-a.done })
	if (a.ep == nil) == (a.err == nil) {
		a.x.fatalf("Dial returned the endpoint %v and the error %v", a.ep, a.err)
	}
	return a.ep, a.err
}

// pending reports whether the Dial has not returned.
func (a *attempt) pending() bool {
	select {
	case <-a.done:
		return false
	default:
		return true
	}
}

// failed waits for a Dial that has to fail, with the given status.
func (a *attempt) failed(want provider.Status) *provider.Error {
	_, err := a.wait()
	return a.x.wantError("Dial", err, want)
}

// wantError checks that err is a *provider.Error with a status.
func (x *rig) wantError(what string, err error, want provider.Status) *provider.Error {
	if err == nil {
		x.fatalf("%s succeeded, the error should be: %v", what, want)
	}
	var e *provider.Error
	if !errors.As(err, &e) {
		x.fatalf("%s: %v (%T) is no *provider.Error", what, err, err)
	}
	if s := provider.StatusOf(err); s != want || e.Status != want {
		x.fatalf("%s: %q has status %q, it should be %q", what, err, s, want)
	}
	return e
}

// wantStatus checks that err has one of the statuses.
func (x *rig) wantStatus(what string, err error, want ...provider.Status) {
	if err == nil {
		x.fatalf("%s succeeded, the error should be: %v", what, want)
	}
	for _, s := range want {
		if provider.StatusOf(err) == s && errors.Is(err, s) {
			return
		}
	}
	x.fatalf("%s: %q, the error should be: %v", what, err, want)
}

// listen listens at the address of the configuration. The rule closes it if nobody else does.
func (x *rig) listen(backlog int) provider.Listener {
	var (
		l   provider.Listener
		err error
	)
	x.bounded("Listen", func() { l, err = x.listener.Listen(x.Addr, backlog) })
	if err != nil {
		x.fatalf("Listen(%v, %d): %v", x.Addr, backlog, err)
	}
	x.cleanup(func() { l.Close() })
	return l
}

// request waits for a connection request.
func (x *rig) request(l provider.Listener) provider.Request {
	var (
		r   provider.Request
		err error
	)
	x.bounded("Listener.Accept", func() { r, err = l.Accept() })
	if err != nil {
		x.fatalf("Listener.Accept: %v", err)
	}
	return r
}

// accept accepts a request that should be good.
func (x *rig) accept(r provider.Request) provider.Endpoint {
	var (
		ep  provider.Endpoint
		err error
	)
	x.bounded("Request.Accept", func() { ep, err = r.Accept(x.ctx) })
	if err != nil || ep == nil {
		x.fatalf("Request.Accept: %v, %v", ep, err)
	}
	return ep
}

// pair makes both ends of a connection of a Dial that has been accepted.
func (x *rig) pair(a *attempt, accepted provider.Endpoint) (dialer, listener *end) {
	b := x.adopt(accepted, x.listener, "listener's end")
	ep, err := a.wait()
	if err != nil {
		x.fatalf("Dial: %v", err)
	}
	d := x.adopt(ep, x.dialer, "dialer's end")
	d.peer, b.peer, d.dialing = b, d, true
	return d, b
}

// connect makes a connection.
func (x *rig) connect() (dialer, listener *end) {
	if x.lis == nil {
		x.lis = x.listen(8)
	}
	return x.connectTo(x.lis)
}

func (x *rig) connectTo(l provider.Listener) (dialer, listener *end) {
	a := x.dialTo(l.Addr())
	return x.pair(a, x.accept(x.request(l)))
}

// eachWay calls f with a new connection for each direction, as the two ends may be made differently.
func (x *rig) eachWay(f func(from, to *end)) {
	a, b := x.connect()
	f(a, b)
	b, a = x.connect()
	f(a, b)
}

// another makes another connection, with the parts as they are in that of e: the first end dials if e does.
func (x *rig) another(e *end) (like, other *end) {
	a, b := x.connect()
	if !e.dialing {
		return b, a
	}
	return a, b
}
