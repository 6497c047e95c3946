package emu

import "sansock/provider"

// seen is how many completions Poll may take.
func (q *completions) seen() int { return q.ring.Len() - int(q.hidden) }

// push reports a completion, and whether to call callWake. Called with the lock held.
func (e *endpoint) push(c comp) bool {
	e.cq.ring.Push(c)
	if c.urgent {
		e.cq.urgent++
	}
	if e.slow != nil {
		return e.slow.hold(e, c.urgent)
	}
	return e.rouse(c.urgent)
}

// Poll implements provider.Endpoint.
func (e *endpoint) Poll(c []provider.Completion) int {
	if e.state.Load()&lockSome == 0 {
		return 0
	}
	n := 0
	e.lock()
	for n < len(c) && e.cq.seen() > 0 {
		p := e.cq.ring.Front()
		c[n] = provider.Completion{Context: p.ctx, Op: p.op, Status: p.status, Len: int(p.n)}
		n++
		e.cq.posted[p.op]--
		if p.urgent {
			e.cq.urgent--
		}
		e.cq.ring.Skip()
	}
	if e.gate&gateOver != 0 && n < len(c) && e.settled() {
		n += e.pollEnd(c[n:])
	}
	e.unlock()
	return n
}

// settled reports that nothing is under way that would still complete by itself. Called with the
// lock held.
func (e *endpoint) settled() bool { return e.work.own == 0 && !e.rq.copying }

// pollEnd reports what the end of the connection left: operations cut short, then the end itself.
// They need no place in the completion queue, so the end needs no memory. Called with the lock
// held.
func (e *endpoint) pollEnd(c []provider.Completion) (n int) {
	for ; n < len(c) && e.rq.posted.Len() > 0; n++ {
		r := e.rq.posted.Front()
		c[n] = provider.Completion{Context: r.ctx, Op: provider.OpRecv, Status: provider.StatusAborted}
		e.cq.posted[provider.OpRecv]--
		e.rq.posted.Skip()
	}
	for ; n < len(c) && e.stuck.Len() > 0; n++ {
		o := e.stuck.Front()
		c[n] = provider.Completion{Context: o.ctx, Op: o.op, Status: provider.StatusAborted}
		e.cq.posted[o.op]--
		e.stuck.Skip()
	}
	if n < len(c) && e.last.stage == lastPending {
		c[n] = provider.Completion{Op: provider.OpDisconnect, Status: e.last.cause}
		e.last.stage = lastReported
		n++
	}
	return n
}

// OnWake implements provider.Endpoint.
func (e *endpoint) OnWake(wake func()) {
	e.lock()
	e.wake = wake
	e.unlock()
}

// Arm implements provider.Endpoint.
func (e *endpoint) Arm(w provider.Wake) (ready bool) {
	s := e.state.Load()
	if s&(lockSome|armedMask) == uint32(w)*lockArmed {
		return false // it is in force already, and what had come before is polled
	}
	if s&(lockHeld|lockSome) == 0 && e.state.CompareAndSwap(s, s&^armedMask|uint32(w)*lockArmed) {
		return false
	}
	e.lock()
	if e.life == lifeOpen {
		e.arm(w)
	}
	ready = e.waiting(w)
	e.unlock()
	return ready
}

// waiting reports whether Poll would return something that w covers. Called with the lock held.
func (e *endpoint) waiting(w provider.Wake) bool {
	if w == provider.WakeNone {
		return false
	}
	if e.gate&gateOver != 0 && e.settled() && (e.rq.posted.Len() > 0 || e.stuck.Len() > 0 || e.last.stage == lastPending) {
		return true
	}
	seen := e.cq.seen()
	if w == provider.WakeAny || e.cq.urgent == 0 || e.cq.hidden == 0 {
		return seen > 0 && (w == provider.WakeAny || e.cq.urgent > 0)
	}
	for i := range seen {
		if e.cq.ring.At(i).urgent {
			return true
		}
	}
	return false
}

// arm sets what wakes. Called with the lock held.
func (e *endpoint) arm(w provider.Wake) {
	e.state.And(^armedMask)
	e.state.Or(uint32(w) * lockArmed)
}

// rouse uses up the arming if a completion is covered by it. The caller then calls callWake, after
// it has released the lock. Called with the lock held, and not again before unlock when it has
// reported true.
func (e *endpoint) rouse(urgent bool) bool {
	w := e.state.Load() & armedMask
	if w == 0 || w == uint32(provider.WakeSolicited)*lockArmed && !urgent {
		return false
	}
	e.delta = lockWaker - w
	return true
}

// callWake follows rouse. Close waits for it.
func (e *endpoint) callWake() {
	if e.wake != nil {
		e.wake()
	}
	if s := e.state.Add(^(lockWaker - 1)); s&lockClosing != 0 && s < lockWaker {
		e.lock()
		e.signal()
		e.unlock()
	}
}
