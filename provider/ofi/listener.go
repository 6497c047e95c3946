//go:build ofi && cgo && linux

package ofi

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"sansock/provider"
)

// listener has an event queue of its own. The tcp provider keeps half-open connections in there that refer to the passive
// endpoint without holding it, so the queue is not read any more once that is closed.
type listener struct {
	prov    *Provider
	addr    netip.AddrPort
	backlog int
	queue   *eventQueue
	passive []*cPassive // one for each address, as the fabrics say no more about a request than where it was listened for

	mu      sync.Mutex // held for every event; comes before no other
	cond    sync.Cond  // a request has come, or the listener has closed
	waiting []*request
	out     int // requests that were taken and not answered: they need the queue
	closed  bool
	shut    bool // the queue may be closed with the last of them
}

// request is one Dial that waits. It is answered by one goroutine, once.
type request struct {
	l             *listener
	c             *cInfo
	in            *info
	local, remote netip.AddrPort
	answered      bool // under l.mu
}

// Listen implements provider.Provider. A backlog below 1 is taken as 1. The unspecified address stands for the addresses
// that Prefixes returns now.
func (p *Provider) Listen(local netip.AddrPort, backlog int) (provider.Listener, error) {
	local = clean(local)
	var at []*info
	if local.Addr().IsUnspecified() {
		both := local.Addr().Is6()
		err := p.networks(func(i *info, _ netip.Prefix) {
			if i.addr.Is4() == local.Addr().Is4() || both {
				at = append(at, i)
			}
		})
		if err != nil {
			return nil, err
		}
	} else if i := p.at(local.Addr()); i != nil {
		at = append(at, i)
	}
	if len(at) == 0 {
		return nil, p.failure("listen", provider.StatusAddrNotAvail, nil)
	}
	if !p.acquire() {
		return nil, p.failure("listen", provider.StatusClosed, nil)
	}
	l := &listener{prov: p, backlog: max(backlog, 1)}
	l.cond.L = &l.mu
	q, err := startEventQueue(p.fab.c, &l.mu, l.take)
	if err != nil {
		p.fab.release()
		return nil, p.failure("listen", connectStatus(p.kind, codeOf(err)), err)
	}
	l.queue = q
	for try := 1; ; try++ {
		err = l.bind(at, local)
		if err == nil || local.Port() != 0 || try >= portTries || connectStatus(p.kind, codeOf(err)) != provider.StatusAddrInUse {
			break
		}
	}
	if err == nil && !p.remember(l) {
		err = p.failure("listen", provider.StatusClosed, nil)
	}
	if err != nil {
		l.Close()
		var pe *provider.Error
		if errors.As(err, &pe) {
			return nil, err
		}
		return nil, p.failure("listen", connectStatus(p.kind, codeOf(err)), err)
	}
	return l, nil
}

// bind listens at each address, all with the same port, or at none.
func (l *listener) bind(at []*info, local netip.AddrPort) error {
	port := local.Port()
	if port == 0 {
		port = anyPort()
	}
	// Requests that come before it is known are for this port already.
	l.mu.Lock()
	l.addr = netip.AddrPortFrom(local.Addr(), port)
	l.mu.Unlock()
	for _, i := range at {
		c, err := i.with(netip.AddrPortFrom(i.addr, l.prov.carrier(port)), netip.AddrPort{})
		if err == nil {
			var pass *cPassive
			if pass, _, err = listenAt(l.queue.c, c, l.backlog); err == nil {
				l.passive = append(l.passive, pass)
			}
			freeInfo(c)
		}
		if err != nil {
			l.unbind()
			return err
		}
	}
	return nil
}

func (l *listener) unbind() {
	l.mu.Lock() // not while the queue is read
	defer l.mu.Unlock()
	for _, pass := range l.passive {
		closePassive(pass)
	}
	l.passive = nil
}

// take answers or queues a request. Called with mu held, by the event queue.
func (l *listener) take(ev event) {
	if ev.what != eventRequest {
		return // of a request that the dialer has given up
	}
	p, ok := decodePrivate(ev.data)
	local, remote := sourceOf(ev.request), destinationOf(ev.request)
	r := &request{l: l, c: ev.request, in: l.prov.at(local.Addr())}
	switch {
	case !ok || p.kind != kindRequest || p.dialed != l.addr.Port() || r.in == nil:
		r.reject(kindNone, nil)
	case l.closed || len(l.waiting) >= l.backlog:
		r.reject(kindRefuse, nil)
	default:
		r.local, r.remote = netip.AddrPortFrom(local.Addr(), p.dialed), remote
		if p.local != 0 {
			r.remote = netip.AddrPortFrom(remote.Addr(), p.local)
		}
		l.waiting = append(l.waiting, r)
		l.cond.Signal()
	}
}

// Accept implements provider.Listener.
func (l *listener) Accept() (provider.Request, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.waiting) == 0 && !l.closed {
		l.cond.Wait()
	}
	if l.closed {
		return nil, l.prov.failure("accept", provider.StatusClosed, nil)
	}
	r := l.waiting[0]
	l.waiting = append(l.waiting[:0], l.waiting[1:]...)
	l.out++
	return r, nil
}

// Addr implements provider.Listener.
func (l *listener) Addr() netip.AddrPort { return l.addr }

// drainRequests bounds how many requests Close refuses. Nobody adds any by then, as a rule.
const drainRequests = 1 << 12

// Close implements provider.Listener.
func (l *listener) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.cond.Broadcast()
	l.mu.Unlock()
	l.queue.stop()
	// From here on nobody else reads the queue. What is in it is refused.
	l.mu.Lock()
	for range drainRequests {
		ev, some, _, err := nextEvent(l.queue.c)
		if !some || err != nil {
			break
		}
		l.take(ev)
	}
	waiting := l.waiting
	l.waiting = nil
	l.mu.Unlock()
	l.unbind()
	for _, r := range waiting {
		r.reject(kindRefuse, nil)
	}
	l.prov.forget(l)
	l.mu.Lock()
	l.shut = true
	last := l.out == 0
	l.mu.Unlock()
	if last {
		l.free()
	}
	return nil
}

func (l *listener) free() {
	l.queue.close()
	l.prov.fab.release()
}

// returned notes that a request which Accept gave out needs the listener no more.
func (l *listener) returned() {
	l.mu.Lock()
	l.out--
	last := l.shut && l.out == 0
	l.mu.Unlock()
	if last {
		l.free()
	}
}

// LocalAddr implements provider.Request.
func (r *request) LocalAddr() netip.AddrPort { return r.local }

// RemoteAddr implements provider.Request.
func (r *request) RemoteAddr() netip.AddrPort { return r.remote }

// reject answers with a rejection, and frees the request.
func (r *request) reject(k kind, reason []byte) error {
	err := reject(r.l.queue.c, r.c, private{kind: k, reason: reason}.encode())
	freeInfo(r.c)
	r.c = nil
	return err
}

// answer claims the request for one answer.
func (r *request) answer(op string) error {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	if r.answered {
		return r.l.prov.failure(op, provider.StatusDisconnected, nil)
	}
	r.answered = true
	return nil
}

// Reject implements provider.Request.
func (r *request) Reject(reason []byte) error {
	if err := r.answer("reject"); err != nil {
		return err
	}
	defer r.l.returned()
	if err := r.reject(kindRefuse, reason); err != nil {
		return r.l.prov.failure("reject", provider.StatusDisconnected, err)
	}
	return nil
}

// acceptTimeout is how long a dialer may take to confirm.
const acceptTimeout = 10 * time.Second

// Accept implements provider.Request.
func (r *request) Accept(ctx context.Context) (provider.Endpoint, error) {
	if err := r.answer("accept"); err != nil {
		return nil, err
	}
	defer r.l.returned()
	p := r.l.prov
	if err := ctx.Err(); err != nil {
		r.reject(kindFailed, nil)
		return nil, p.ended("accept", err)
	}
	e, err := p.newEndpoint("accept", r.c, r.in)
	if err != nil {
		r.reject(kindFailed, nil)
		return nil, err
	}
	e.local, e.remote = r.local, r.remote
	if err := p.fab.with(e, func() error { return e.c.accept(private{kind: kindAccept}.encode()) }); err != nil {
		e.Close()
		r.reject(kindFailed, nil) // the library wants it to be told
		return nil, p.failure("accept", provider.StatusDisconnected, err)
	}
	freeInfo(r.c)
	r.c = nil
	ctx, cancel := context.WithTimeoutCause(ctx, acceptTimeout, errSilent)
	defer cancel()
	ev, err := e.connected(ctx, "accept")
	if err == nil && ev.what != eventConnected {
		err = p.failure("accept", provider.StatusDisconnected, nil)
	}
	if err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

var errSilent = errors.New("the peer does not answer")
