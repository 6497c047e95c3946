//go:build linux

package shm

import "sansock/provider"

// push reports a completion. Called with mu held.
func (e *endpoint) push(c comp) {
	e.cq.ring.Push(c)
	if c.urgent {
		e.cq.urgent++
	}
	e.rouse(c.urgent)
}

// Poll implements provider.Endpoint.
func (e *endpoint) Poll(c []provider.Completion) int {
	n := 0
	e.lockDrained(poller)
	for n < len(c) && e.cq.ring.Len() > 0 {
		p := e.cq.ring.Front()
		c[n] = provider.Completion{Context: p.ctx, Op: p.op, Status: p.status, Len: int(p.n)}
		n++
		e.cq.posted[p.op]--
		if p.urgent {
			e.cq.urgent--
		}
		if p.open {
			e.cq.opens--
		}
		e.cq.ring.Skip()
	}
	e.polled()
	if e.over() && n < len(c) {
		n += e.pollEnd(c[n:])
	}
	e.mu.Unlock()
	return n
}

// pollEnd reports what the end of the connection left: operations cut short, then the end itself.
// Called with mu held.
func (e *endpoint) pollEnd(c []provider.Completion) (n int) {
	for ; n < len(c) && e.in.recvs.Len() > 0; n++ {
		r := e.in.recvs.Front()
		c[n] = provider.Completion{Context: r.ctx, Op: provider.OpRecv, Status: provider.StatusAborted}
		e.cq.posted[provider.OpRecv]--
		e.in.recvs.Drop()
	}
	for i := 0; e.reqs != nil && n < len(c) && i < maxRDMAs; i++ {
		if q := &e.reqs[i]; q.op != 0 {
			c[n] = provider.Completion{Context: q.ctx, Op: q.op, Status: provider.StatusAborted}
			e.cq.posted[q.op]--
			q.op = 0
			n++
		}
	}
	if n < len(c) && e.last.stage == lastPending {
		c[n] = provider.Completion{Op: provider.OpDisconnect, Status: e.last.cause}
		e.last.stage = lastReported
		n++
	}
	return n
}

// polled follows Poll, which may have left open messages to the next one. Called with mu held.
func (e *endpoint) polled() {
	switch {
	case e.over():
	case e.cq.opens == 0:
		e.note(e.in.noted &^ unreadComp)
	default:
		e.note(e.in.noted | unreadComp)
	}
}
