//go:build linux

package shm

import "sansock/provider"

// PostSend implements provider.Endpoint.
func (e *endpoint) PostSend(s provider.Send) error {
	a, b := s.Inline[0], s.Inline[1]
	if s.Local.Bytes != nil {
		a, b = s.Local.Bytes, nil
	}
	n := len(a) + len(b)
	if n > maxMessage {
		return provider.StatusTooLong
	}
	flag := flagOf(&s)
	e.mu.Lock()
	defer e.mu.Unlock()
	var unknown uint64 // the descriptor that the last pump was for
	for tries := 0; ; tries++ {
		if e.over() {
			return e.refusal()
		}
		if s.Local.Bytes != nil {
			if st := e.admit(&s); st != provider.StatusOK {
				return st
			}
		}
		if e.out.descs == nil {
			return e.sendEarly(&s)
		}
		w := e.out.descs[e.out.sent%slots].Load()
		observed()
		if w>>lapShift<<lapShift != lap(e.out.sent) {
			return e.sendUnposted(&s, a, b, flag)
		}
		p, size := unpackDesc(w)
		if n > size {
			e.emit(evTooLong, 0, n, flag&^open, true)
			e.sendFailed(&s, provider.StatusTooLong)
			return nil
		}
		room := n
		if s.Open {
			room = min(size, maxMessage)
		}
		dst, ok := at(*e.l.peerSegs.Load(), p, room)
		if ok {
			k := copy(dst, a)
			copy(dst[k:], b)
			e.sendInto(&s, dst, n, flag)
			return nil
		}
		if w == unknown || tries == slots || e.stage == stageEarly {
			e.sendFailed(&s, provider.StatusLink)
			return nil
		}
		// The peer has announced the memory before it posted the receive. Another sender may take
		// this receive meanwhile, and the next be in memory that was announced after the pump.
		unknown = w
		e.mu.Unlock()
		e.l.pump()
		e.mu.Lock()
	}
}

// flagOf is the flag of the event that tells of a message.
func flagOf(s *provider.Send) (flag uint64) {
	if s.Solicited {
		flag = solicited
	}
	if s.Open {
		flag |= open
	}
	return flag
}

// admit is why a send from registered memory cannot be posted, StatusOK if it can. Called with mu
// held.
func (e *endpoint) admit(s *provider.Send) provider.Status {
	if e.cq.posted[provider.OpSend] >= uint32(attributes.MaxSends) {
		return provider.StatusQueueFull
	}
	if _, _, ok := e.table.Local(&s.Local); !ok {
		return provider.StatusLocal
	}
	return provider.StatusOK
}

// sendInto tells of a message that lies in the receive dst. Called with mu held.
func (e *endpoint) sendInto(s *provider.Send, dst []byte, n int, flag uint64) {
	e.out.sent++
	i := e.out.given
	e.emit(evMessage, 0, n, flag, s.Solicited)
	if s.Open {
		e.out.tail = tail{&e.out.events[i%slots], packEvent(evMessage, 0, n, flag, i), dst}
	}
	if s.Local.Bytes != nil {
		e.cq.posted[provider.OpSend]++
		e.push(comp{ctx: s.Context, op: provider.OpSend})
	}
}

// sendUnposted sends a message to a peer that has no receive posted. Called with mu held.
func (e *endpoint) sendUnposted(s *provider.Send, a, b []byte, flag uint64) error {
	if e.out.sent != 0 || len(a)+len(b) > provider.MaxFirstMessage {
		e.sendFailed(s, provider.StatusNotReady)
		return nil
	}
	k := copy(e.out.held, a)
	copy(e.out.held[k:], b)
	e.out.sent++ // it takes the first receive, whenever that is posted
	e.emit(evHeld, 0, len(a)+len(b), flag&^open, s.Solicited)
	if s.Local.Bytes != nil {
		e.cq.posted[provider.OpSend]++
		e.push(comp{ctx: s.Context, op: provider.OpSend})
	}
	return nil
}

// sendEarly keeps the message that will travel with the request. Before the peer has accepted there
// is no other. Called with mu held.
func (e *endpoint) sendEarly(s *provider.Send) error {
	n := len(s.Inline[0]) + len(s.Inline[1])
	if e.stage != stageEarly || e.out.sent != 0 || !s.IsInline() || n > provider.MaxFirstMessage {
		return provider.StatusNotReady
	}
	e.dial.first = append(append(make([]byte, 0, n), s.Inline[0]...), s.Inline[1]...)
	e.out.sent++ // it takes the first receive
	return nil
}

// sendFailed reports a send that ends the connection, and ends it. Called with mu held.
func (e *endpoint) sendFailed(s *provider.Send, st provider.Status) {
	e.cq.posted[provider.OpSend]++ // Poll takes it off again
	e.push(comp{ctx: s.Context, op: provider.OpSend, status: st, urgent: true})
	e.end(st)
}

// emit gives the peer an event. Called with mu held.
func (e *endpoint) emit(k kind, arg uint8, n int, flag uint64, urgent bool) {
	e.give(k, arg, n, flag)
	if k == evRequest {
		e.l.post(e.id) // the device works for it, whether or not anybody sleeps
		return
	}
	if e.stage == stageEarly {
		return // the peer waits for evAccepted, which rings
	}
	// The event is stored before the peer's arming is loaded; the peer arms before it looks for
	// events.
	w := e.out.arm.Load()
	mode := provider.Wake(w &^ parked)
	if (mode == provider.WakeAny || mode == provider.WakeSolicited && urgent) && e.out.arm.CompareAndSwap(w, 0) {
		e.ringFor(w)
	}
}

// give stores an event for the peer, who may not look for it. Called with mu held.
func (e *endpoint) give(k kind, arg uint8, n int, flag uint64) {
	e.out.tail.word = 0 // only the message sent last grows
	published()
	e.out.events[e.out.given%slots].Swap(packEvent(k, arg, n, flag, e.out.given)) // see words
	e.out.given++
}
