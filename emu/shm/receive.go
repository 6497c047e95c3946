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
	o := e.drain(t)
	// Each pump brings the memory that an event before it names. A later event may name what was
	// announced after the pump: only the same one, still unknown, is wrong.
	for range slots {
		if o != later {
			return
		}
		if e.stage == stageEarly { // the goroutine that receives may be ours
			break
		}
		at := e.in.taken
		e.mu.Unlock()
		e.l.pump()
		e.mu.Lock()
		if o = e.drain(t); o == later && e.in.taken == at {
			break
		}
	}
	if o == later {
		e.end(provider.StatusLink)
	}
}

// drain takes the events that have arrived, and says what became of the last it has seen, which is
// not taken if it has to wait. Called with mu held.
func (e *endpoint) drain(t taker) outcome {
	for range slots {
		if e.over() {
			return taken
		}
		slot := &e.in.events[e.in.taken%slots]
		w := slot.Load()
		if !current(w, e.in.taken) {
			return taken
		}
		if e.mem.loose != 0 {
			e.tighten()
		}
		if w&open != 0 {
			w = e.shut(slot, t)
		}
		observed()
		o := wrong
		if current(w, e.in.taken) {
			o = e.event(w)
		}
		switch o {
		case wrong:
			e.end(provider.StatusLink)
			return taken
		case later:
			return later
		}
		e.in.taken++
	}
	return taken
}

// event acts on one event. Called with mu held.
func (e *endpoint) event(w uint64) outcome {
	k, arg, n := unpackEvent(w)
	urgent := w&solicited != 0
	if e.l.dials && e.stage != stageOpen && k != evAccepted { // there is no inbox for an answer
		return wrong
	}
	if w&open != 0 && k != evMessage {
		return wrong
	}
	switch k {
	case evMessage:
		if e.in.recvs.Len() == 0 {
			return wrong
		}
		r := e.in.recvs.Front()
		if n > r.size {
			return wrong
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
			return wrong
		}
		e.received(0, provider.StatusTooLong, true, false)
		e.end(provider.StatusTooLong)
	case evRequest:
		if arg < maxRDMAs {
			return e.serve(arg)
		}
		return wrong
	case evAnswer:
		if arg < maxRDMAs && e.reqs != nil && e.answered(arg, n) {
			return taken
		}
		return wrong
	case evAccepted:
		if e.stage == stageAsked && e.in.taken == 0 {
			return e.welcomed(ptr(n) * grain)
		}
		return wrong
	case evFin:
		e.end(causeOf(provider.Status(n)))
		e.depart()
	default:
		return wrong
	}
	return taken
}

// keep takes the first message, for which no receive was posted. Called with mu held.
func (e *endpoint) keep(n int, urgent bool) outcome {
	if e.in.first != firstAwaited || n > provider.MaxFirstMessage {
		return wrong
	}
	e.in.kept = append(make([]byte, 0, n), e.in.held[:n]...)
	if e.in.first = firstKept; urgent {
		e.in.first = firstKeptUrgent
	}
	if e.in.recvs.Len() > 0 {
		e.deliverKept()
	}
	return taken
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
