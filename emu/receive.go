package emu

import (
	"sansock/internal/regtable"
	"sansock/provider"
)

// PostRecv implements provider.Endpoint.
func (e *endpoint) PostRecv(r provider.Recv) error {
	e.lock()
	if e.gate&gateOver != 0 {
		s := e.refusal()
		e.unlock()
		return s
	}
	if e.cq.posted[provider.OpRecv] >= uint32(e.attr.MaxRecvs) {
		e.unlock()
		return provider.StatusQueueFull
	}
	i, off, ok := e.table.Local(&r.Buffer)
	if !ok {
		e.unlock()
		return provider.StatusLocal
	}
	e.cq.posted[provider.OpRecv]++
	e.table.Slots[i].Posted++
	e.rq.posted.Push(recv{ctx: r.Context, off: off, size: uint32(min(len(r.Buffer.Bytes), maxMessage)), slot: i})
	if !e.rq.holds() {
		e.unlock()
		return nil
	}
	return e.deliverHeld()
}

// holds reports whether the first message waits for a receive.
func (q *receives) holds() bool { return q.first == firstHeld || q.first == firstHeldUrgent }

// hold keeps a message, a and b after each other, for which no receive is posted, if it is the
// first.
func (q *receives) hold(a, b []byte, urgent bool) provider.Status {
	n := len(a) + len(b)
	if q.first != firstAwaited || n > provider.MaxFirstMessage {
		return provider.StatusNotReady
	}
	q.held = append(append(make([]byte, 0, n), a...), b...)
	if q.first = firstHeld; urgent {
		q.first = firstHeldUrgent
	}
	return provider.StatusOK
}

// deliver puts a message, a and b after each other, into the first receive of e, the receiving end.
// The answer is StatusOK, StatusDisconnected where e takes nothing, statusLost, or the status with
// which the connection must end.
func (e *endpoint) deliver(a, b []byte, solicited, open bool) provider.Status {
	n := len(a) + len(b)
	e.lock()
	for e.rq.copying && e.gate == 0 {
		e.wait()
	}
	if e.gate != 0 {
		lost := e.gate&gateLost != 0
		e.unlock()
		if lost {
			return statusLost
		}
		return provider.StatusDisconnected
	}
	if e.rq.posted.Len() == 0 {
		st := e.rq.hold(a, b, solicited)
		e.unlock()
		return st
	}
	e.rq.first = firstTaken
	r := *e.rq.posted.Front()
	e.rq.posted.Skip()
	s := &e.table.Slots[r.slot]
	c := comp{ctx: r.ctx, n: uint32(n), op: provider.OpRecv, urgent: solicited}
	st := provider.StatusOK
	switch dst := s.Bytes[r.off : r.off+int(r.size)]; {
	case n > len(dst):
		st = provider.StatusTooLong
		c.n, c.status, c.urgent = 0, st, true
	case n <= copyUnderLock:
		k := copy(dst, a)
		copy(dst[k:], b)
	default:
		// The receive has left the queue but its registration is still in use, and Close waits for
		// copying.
		e.rq.copying = true
		e.unlock()
		k := copy(dst, a)
		copy(dst[k:], b)
		e.lock()
		e.rq.copying = false
		e.signal()
	}
	e.table.Slots[r.slot].Posted--
	if open && st == provider.StatusOK {
		c.open, e.rq.room = true, growing(&e.table.Slots[r.slot], &r, e.peer)
	}
	// If the connection has ended meanwhile, report is still to come, as shut waits for copying.
	wake := e.push(c)
	e.unlock()
	if wake {
		e.callWake()
	}
	return st
}

// deliverHeld moves the first message into the receive that has just been posted. Called with the
// lock held, which it releases.
func (e *endpoint) deliverHeld() error {
	m, urgent := e.rq.held, e.rq.first == firstHeldUrgent
	e.rq.first, e.rq.held = firstTaken, nil
	r := *e.rq.posted.Front()
	e.rq.posted.Skip()
	s := &e.table.Slots[r.slot]
	s.Posted--
	c := comp{ctx: r.ctx, n: uint32(len(m)), op: provider.OpRecv, urgent: urgent}
	short := len(m) > int(r.size)
	if short {
		c.n, c.status, c.urgent = 0, provider.StatusTooLong, true
	} else {
		copy(s.Bytes[r.off:], m)
	}
	wake := e.push(c)
	e.unlock()
	if wake {
		e.callWake()
	}
	if short {
		e.sever(provider.StatusTooLong)
	}
	return nil
}

// growing is the memory that an open message from the endpoint from may fill: the receive r in the
// registration s, as far as the longest message of from reaches.
func growing(s *regtable.Slot, r *recv, from *endpoint) []byte {
	n := min(int(r.size), from.attr.MaxMessage)
	return s.Bytes[r.off : r.off+n : r.off+n]
}
