package emu

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"sansock/emu/shm"
	"sansock/provider"
)

// listener queues connection requests for one address.
type listener struct {
	prov    *Provider
	addr    netip.AddrPort
	backlog int

	rendezvous *shm.Rendezvous // for other processes; nil: none

	mu     sync.Mutex // a leaf
	cond   sync.Cond  // a request has come, or the listener has closed
	queue  []pending
	closed bool
	notify func(provider.Request) // takes requests in place of the queue; nil: none
}

// request is one Dial that waits.
type request struct {
	dialer        *Provider
	to            *listener
	local, remote netip.AddrPort // as the listener sees them

	mu       sync.Mutex
	answered bool        // by Accept, Reject, or the dialer's giving up
	answer   chan answer // holds one
}

type answer struct {
	ep  *endpoint
	err error
}

func (r *request) take() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := !r.answered
	r.answered = true
	return first
}

// refuse answers with StatusRefused.
func (r *request) refuse(reason []byte) bool {
	if !r.take() {
		return false
	}
	r.answer <- answer{err: &provider.Error{Provider: r.dialer.name, Op: "dial", Status: provider.StatusRefused,
		Reason: slices.Clone(reason[:min(len(reason), provider.MaxReject)])}}
	return true
}

// enqueue hands r over. It fails when the backlog is full, or l is closed.
func (l *listener) enqueue(r pending) error {
	l.mu.Lock()
	if l.notify != nil && !l.closed {
		l.mu.Unlock()
		l.notify(r)
		return nil
	}
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return provider.StatusNoListener
	case len(l.queue) >= l.backlog:
		return provider.StatusRefused
	}
	l.queue = append(l.queue, r)
	l.cond.Signal()
	return nil
}

// OnRequest implements provider.RequestNotifier. Where faults are wanted, Accept has them.
func (l *listener) OnRequest(f func(provider.Request)) {
	if l.prov.faults != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.notify = f
}

// withdraw removes a request whose dialer has given up, so that it does not fill the backlog.
func (l *listener) withdraw(r pending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.queue, r); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
	}
}

// Accept implements provider.Listener.
func (l *listener) Accept() (provider.Request, error) {
	if err := l.prov.step(StepRequest, "accept"); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if l.closed {
			return nil, l.prov.failure("accept", provider.StatusClosed)
		}
		if len(l.queue) > 0 {
			break
		}
		l.cond.Wait()
	}
	r := l.queue[0]
	l.queue = slices.Delete(l.queue, 0, 1)
	return r, nil
}

// Addr implements provider.Listener.
func (l *listener) Addr() netip.AddrPort { return l.addr }

// Close implements provider.Listener.
func (l *listener) Close() error {
	if l.rendezvous != nil {
		l.rendezvous.Close()
	}
	l.prov.fabric.unbind(l)
	l.mu.Lock()
	l.closed = true
	waiting := l.queue
	l.queue = nil
	l.cond.Broadcast()
	l.mu.Unlock()
	for _, r := range waiting {
		r.refuse(nil)
	}
	l.prov.forgetListener(l)
	return nil
}

// LocalAddr implements provider.Request.
func (r *request) LocalAddr() netip.AddrPort { return r.local }

// RemoteAddr implements provider.Request.
func (r *request) RemoteAddr() netip.AddrPort { return r.remote }

// Accept implements provider.Request.
func (r *request) Accept(ctx context.Context) (provider.Endpoint, error) {
	p := r.to.prov
	if !r.take() {
		return nil, p.failure("accept", provider.StatusDisconnected)
	}
	err := p.step(StepAccept, "accept")
	if err == nil && ctx.Err() != nil {
		err = p.ended("accept", ctx.Err())
	}
	if err != nil {
		// Not refused: the listener failed, and TCP might not have.
		r.answer <- answer{err: r.dialer.failure("dial", provider.StatusLink)}
		return nil, err
	}
	dialer, accepted := connect(r.dialer, p, r.remote, r.local)
	r.answer <- answer{ep: dialer}
	if err := p.step(StepAcceptComplete, "accept"); err != nil {
		accepted.Close()
		return nil, err
	}
	return accepted.face(), nil
}

// AcceptEarly implements provider.EarlyRequest.
func (r *request) AcceptEarly(ctx context.Context, begin func(provider.Endpoint) error) (provider.Endpoint, error) {
	e, err := r.Accept(ctx)
	if err != nil {
		return nil, err
	}
	if err := begin(e); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// Reject implements provider.Request.
func (r *request) Reject(reason []byte) error {
	if !r.refuse(reason) {
		return r.to.prov.failure("reject", provider.StatusDisconnected)
	}
	return nil
}
