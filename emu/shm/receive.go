//go:build linux

package shm

import "sansock/provider"

// PostRecv implements provider.Endpoint.
func (e *endpoint) PostRecv(r provider.Recv) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.refusal(); s != provider.StatusOK {
		return s
	}
	if e.cq.posted[provider.OpRecv] >= maxRecvs {
		return provider.StatusQueueFull
	}
	i, off, ok := e.table.Local(&r.Buffer)
	if !ok {
		return provider.StatusLocal
	}
	s := &e.table.Slots[i]
	v := recv{ctx: r.Context, off: off, size: uint32(min(len(r.Buffer.Bytes), maxMessage)), slot: i}
	if s.Common {
		v.at = ptr(s.Place) + ptr(off)
	} else {
		b, err := e.alloc(int(v.size))
		if err != nil {
			return err
		}
		v.at, v.bounce = b.at, b.mem
	}
	s.Posted++
	e.cq.posted[provider.OpRecv]++
	e.in.recvs.Push(v)
	published()
	e.in.descs[e.in.posted%slots].Store(packDesc(v.at, int(v.size), e.in.posted))
	e.in.posted++
	if e.in.first.kept() {
		e.deliverKept()
	}
	return nil
}

// lockDrained takes mu and all that has arrived.
func (e *endpoint) lockDrained(t taker) {
	e.mu.Lock()
	e.drain(t)
}

// drain takes the events that have arrived. Called with mu held.
func (e *endpoint) drain(t taker) {
	for range slots {
		if e.over() {
			return
		}
		slot := &e.in.events[e.in.taken%slots]
		w := slot.Load()
		if !current(w, e.in.taken) {
			return
		}
		if e.mem.loose != 0 {
			e.tighten()
		}
		if w&open != 0 {
			w = e.shut(slot, t)
		}
		observed()
		if !current(w, e.in.taken) || !e.event(w) {
			e.end(provider.StatusLink)
			return
		}
		e.in.taken++
	}
}

// event acts on one event, and reports whether it made sense. Called with mu held.
func (e *endpoint) event(w uint64) bool {
	k, arg, n := unpackEvent(w)
	urgent := w&solicited != 0
	if e.l.dials && e.stage != stageOpen && k != evAccepted { // there is no inbox for an answer
		return false
	}
	if w&open != 0 && k != evMessage {
		return false
	}
	switch k {
	case evMessage:
		if e.in.recvs.Len() == 0 {
			return false
		}
		r := e.in.recvs.Front()
		if n > r.size {
			return false
		}
		if r.bounce != nil {
			copy(e.table.Slots[r.slot].Bytes[r.off:], r.bounce[:n])
		}
		if w&open != 0 {
			e.mem.loose = r.at
		}
		e.in.first = firstTaken
		e.received(n, provider.StatusOK, urgent, w&open != 0)
	case evHeld:
		return e.keep(int(n), urgent)
	case evTooLong:
		if e.in.recvs.Len() == 0 {
			return false
		}
		e.received(0, provider.StatusTooLong, true, false)
		e.end(provider.StatusTooLong)
	case evRequest:
		return arg < maxRDMAs && e.serve(arg)
	case evAnswer:
		return arg < maxRDMAs && e.reqs != nil && e.answered(arg, n)
	case evAccepted:
		return e.stage == stageAsked && e.in.taken == 0 && e.welcomed(ptr(n)*grain)
	case evFin:
		e.end(causeOf(provider.Status(n)))
		e.depart()
	default:
		return false
	}
	return true
}

// keep takes the first message, for which no receive was posted, and reports whether it is one. Called with mu held.
func (e *endpoint) keep(n int, urgent bool) bool {
	if e.in.first != firstAwaited || n > provider.MaxFirstMessage {
		return false
	}
	e.in.kept = append(make([]byte, 0, n), e.in.held[:n]...)
	if e.in.first = firstKept; urgent {
		e.in.first = firstKeptUrgent
	}
	if e.in.recvs.Len() > 0 {
		e.deliverKept()
	}
	return true
}

// received completes the first receive, grown with a message that was open. Called with mu held.
func (e *endpoint) received(n uint32, st provider.Status, urgent, grown bool) {
	r := e.in.recvs.Front()
	if r.bounce != nil {
		e.free(bounced(r))
	}
	e.table.Slots[r.slot].Posted--
	c := comp{ctx: r.ctx, n: n, op: provider.OpRecv, status: st, urgent: urgent, open: grown}
	if grown {
		e.cq.opens++
	}
	e.in.recvs.Drop()
	e.push(c)
}

// kept reports whether the first message waits for a receive.
func (f first) kept() bool { return f == firstKept || f == firstKeptUrgent }

// deliverKept moves the first message into the first receive. Called with mu held.
func (e *endpoint) deliverKept() {
	m, urgent := e.in.kept, e.in.first == firstKeptUrgent
	e.in.first, e.in.kept = firstTaken, nil
	r := e.in.recvs.Front()
	if len(m) > int(r.size) {
		e.received(0, provider.StatusTooLong, true, false)
		e.end(provider.StatusTooLong)
		return
	}
	copy(e.table.Slots[r.slot].Bytes[r.off:], m)
	e.received(uint32(len(m)), provider.StatusOK, urgent, false)
}
