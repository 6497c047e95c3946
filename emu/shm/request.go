//go:build linux

package shm

import (
	"context"
	"net/netip"
	"slices"
	"sync/atomic"

	"sansock/provider"
)

// Request is a connection request of another process. It implements provider.Request.
type Request struct {
	l             *link
	id            uint32
	inbox         inbox
	local, remote netip.AddrPort
	first         []byte // the dialer's first message, nil if it has not sent one
	to            Acceptor
	taken         atomic.Bool // by Accept, Reject, or the dialer's going

	// begun is our end while AcceptEarly is under way, and the request among those asked: who takes the request away, or the link, has
	// begun stop, as it uses the peer's memory. It is guarded by the link's mu.
	begun *endpoint
}

// requested notes a request. An error ends the link. It needs rx.
func (l *link) requested(c *control) error {
	b, ok := at(*l.peerSegs.Load(), c.inbox, inboxSize)
	if l.dials || !ok {
		return errWire
	}
	r := &Request{l: l, id: c.conn, inbox: view(b), local: c.remote, remote: c.local, first: slices.Clone(c.first)}
	if e := l.lookup(c.conn); e != nil {
		e.settle() // the dialer has used its number again after an end that we have not looked at
	}
	l.mu.Lock()
	taken := l.asked[c.conn] != nil || int(c.conn) < len(l.conns) && l.conns[c.conn] != nil
	if !taken {
		l.asked[c.conn] = r
	}
	l.mu.Unlock()
	if taken {
		return errWire
	}
	refuse := func(s provider.Status) error {
		l.mu.Lock()
		delete(l.asked, r.id)
		l.mu.Unlock()
		l.sendControl(control{kind: ctlRefused, conn: r.id, status: s})
		return nil
	}
	bind := l.node.find(r.local)
	if bind == nil {
		return refuse(provider.StatusNoListener)
	}
	if !l.node.join(flow{r.remote, r.local}, false) {
		return refuse(provider.StatusAddrInUse)
	}
	r.to = bind.to
	l.calls = append(l.calls, r)
	return nil
}

// call hands over the requests that were noted. That is done without rx, as who takes one may use the endpoint at once, and
// by one goroutine at a time, so that a flood of requests does not nest the calls. It needs rx, which it gives up meanwhile.
func (l *link) call() {
	for !l.calling && len(l.calls) > 0 {
		calls := l.calls
		l.calls, l.calling = nil, true
		l.rx.Unlock()
		for _, r := range calls {
			if err := r.to.Requested(r); err != nil {
				r.Refuse(provider.StatusOf(err), nil)
			} else if r.taken.Load() {
				r.to.Withdrawn(r) // perhaps that was before
			}
		}
		l.rx.Lock()
		l.calling = false
	}
}

// withdraw ends a request that is not among those asked any more, as the dialer has gone. It reports false if the request has been
// taken: who has taken it finds out.
func (r *Request) withdraw() bool {
	if r.taken.Swap(true) {
		r.l.mu.Lock()
		e := r.begun // not set any more
		r.l.mu.Unlock()
		if e != nil {
			e.left(provider.StatusDisconnected)
		}
		return false
	}
	r.l.node.leave(flow{r.remote, r.local}, false)
	r.to.Withdrawn(r)
	return true
}

// LocalAddr implements provider.Request.
func (r *Request) LocalAddr() netip.AddrPort { return r.local }

// RemoteAddr implements provider.Request.
func (r *Request) RemoteAddr() netip.AddrPort { return r.remote }

// Accept implements provider.Request.
func (r *Request) Accept(ctx context.Context) (provider.Endpoint, error) {
	return r.AcceptEarly(ctx, nil)
}

// AcceptEarly implements provider.EarlyRequest.
func (r *Request) AcceptEarly(ctx context.Context, begin func(provider.Endpoint) error) (provider.Endpoint, error) {
	if r.taken.Swap(true) {
		return nil, r.l.node.failure("accept", provider.StatusDisconnected, nil)
	}
	if err := ctx.Err(); err != nil {
		r.refuse(provider.StatusLink, nil)
		return nil, r.l.node.failure("accept", provider.StatusAborted, err)
	}
	e, err := newEndpoint(r.l, r.local, r.remote)
	if err != nil {
		r.refuse(provider.StatusNoMemory, nil)
		return nil, r.l.node.failure("accept", provider.StatusOf(err), err)
	}
	e.id, e.out.inbox = r.id, r.inbox
	e.out.given = 1 // after evAccepted
	if r.first != nil {
		e.in.first, e.in.kept = firstKeptUrgent, r.first
	}
	l := r.l
	l.mu.Lock()
	ok := l.asked[r.id] == r && !l.dead
	if ok {
		r.begun = e
	}
	l.mu.Unlock()
	if ok && begin != nil {
		if err := begin(e); err != nil {
			e.Close()
			r.refuse(provider.StatusLink, nil)
			return nil, err
		}
	}
	e.mu.Lock()
	ok = ok && !e.over() // else the peer is gone, or what it has put into the shared memory was nonsense
	l.mu.Lock()
	if ok = ok && l.asked[r.id] == r && !l.dead; ok {
		delete(l.asked, r.id)
		for int(r.id) >= len(l.conns) {
			l.conns = append(l.conns, nil)
		}
		l.conns[r.id] = e
		l.used++
	}
	l.mu.Unlock()
	if ok {
		published()
		e.out.events[0].Swap(packEvent(evAccepted, 0, int(e.in.blk.at/grain), solicited, 0)) // see words
		if w := e.takeArming(); w != 0 {
			e.ringFor(w)
		}
		e.stage = stageOpen // else the peer has not heard of it, and will not
	}
	e.mu.Unlock()
	if !ok {
		e.Close()
		r.refuse(provider.StatusLink, nil)
		return nil, l.node.failure("accept", provider.StatusDisconnected, nil)
	}
	return e, nil
}

// Reject implements provider.Request.
func (r *Request) Reject(reason []byte) error {
	return r.Refuse(provider.StatusRefused, reason)
}

// Refuse is Reject with another status, for requests that are refused on behalf of nobody.
func (r *Request) Refuse(s provider.Status, reason []byte) error {
	if r.taken.Swap(true) || !r.refuse(s, reason) {
		return r.l.node.failure("reject", provider.StatusDisconnected, nil)
	}
	return nil
}

// refuse answers a request that has been taken, and reports whether the dialer still waits.
func (r *Request) refuse(s provider.Status, reason []byte) bool {
	l := r.l
	l.mu.Lock()
	waits := l.asked[r.id] == r
	delete(l.asked, r.id)
	l.mu.Unlock()
	l.node.leave(flow{r.remote, r.local}, false)
	if waits {
		l.sendControl(control{kind: ctlRefused, conn: r.id, status: s, reason: reason[:min(len(reason), provider.MaxReject)]})
	} else {
		l.sendFin(r.id, provider.StatusOK) // it has gone, and wants to hear that we know
	}
	return waits
}
