package emu

import (
	"sansock/internal/regtable"
	"sansock/provider"
)

const (
	// copyUnderLock is the longest message that is copied with the receiver's lock held: up to there the copy is
	// cheaper than taking the lock again.
	copyUnderLock = 17 << 10

	// An RDMA transfer is copied in pieces, and between them it is seen whether it is still allowed. Copies of 1 MiB and
	// more bypass the caches: that is twice as fast for memory which is not in them, and much slower for what
	// is, or will be read next. So only transfers beyond the caches' size are copied in large pieces.
	rdmaPiece      = 256 << 10
	largeRDMA      = 8 << 20
	largeRDMAPiece = 4 << 20

	// maxMessage bounds Attributes.MaxMessage.
	maxMessage = 1 << 30
)

// statusLost is what deliver and reach return where the link swallows everything: there will be no answer.
const statusLost provider.Status = 255

// PostSend implements provider.Endpoint.
func (e *endpoint) PostSend(s provider.Send) error {
	if s.Local.Bytes != nil {
		return e.sendLocal(&s)
	}
	n := len(s.Inline[0]) + len(s.Inline[1])
	if n > e.attr.MaxInline {
		return provider.StatusTooLong
	}
	p := e.peer
	p.lock()
	if p.recvs.Len() == 0 || p.gate != 0 || n > copyUnderLock || p.copying {
		p.unlock()
		return e.sendInline(&s)
	}
	r := p.recvs.Front()
	if n > int(r.size) {
		p.unlock()
		return e.sendInline(&s)
	}
	b := &p.table.Slots[r.slot]
	k := copy(b.Bytes[r.off:], s.Inline[0])
	copy(b.Bytes[r.off+k:], s.Inline[1])
	b.Posted--
	p.started = true
	c := comp{ctx: r.ctx, n: uint32(n), op: provider.OpRecv, urgent: s.Solicited, open: s.Open}
	if s.Open {
		p.room = growing(b, r, e)
	}
	p.recvs.Skip()
	wake := p.push(c)
	p.unlock()
	if wake {
		p.callWake()
	}
	return nil
}

// sendInline is PostSend where it is not simple.
func (e *endpoint) sendInline(s *provider.Send) error {
	st := e.peer.deliver(s.Inline[0], s.Inline[1], s.Solicited, s.Open)
	switch st {
	case provider.StatusOK:
		return nil
	case provider.StatusDisconnected:
		return e.notPosted()
	case statusLost:
		e.lock()
		st = e.refusal()
		e.unlock()
		return st.Err()
	}
	e.sendFailed(s.Context, st)
	return nil
}

// sendFailed reports that an inline send has ended the connection, and ends it.
func (e *endpoint) sendFailed(ctx uint64, st provider.Status) {
	e.lock()
	e.out[provider.OpSend]++ // Poll takes it off again
	wake := e.push(comp{ctx: ctx, op: provider.OpSend, status: st, urgent: true})
	e.unlock()
	if wake {
		e.callWake()
	}
	e.sever(st)
}

// notPosted is the error of an operation that found the peer's gate shut.
func (e *endpoint) notPosted() error {
	e.lock()
	defer e.unlock()
	if e.closed {
		return provider.StatusClosed
	}
	return provider.StatusDisconnected
}

// begin admits an operation whose memory is s. need says that it must be registered. It returns the slot, or none for
// memory that is not registered.
func (e *endpoint) begin(s *provider.Segment, kind provider.Op, need bool) (int32, error) {
	e.lock()
	defer e.unlock()
	if st := e.refusal(); st != provider.StatusOK {
		return regtable.None, st
	}
	if kind == provider.OpSend {
		if e.out[provider.OpSend] >= uint32(e.attr.MaxSends) {
			return regtable.None, provider.StatusQueueFull
		}
	} else if e.out[provider.OpWrite]+e.out[provider.OpRead] >= uint32(e.attr.MaxRDMAs) {
		return regtable.None, provider.StatusQueueFull
	}
	i := int32(regtable.None)
	if need || s.Handle != 0 {
		var ok bool
		if i, _, ok = e.table.Local(s); !ok {
			return regtable.None, provider.StatusLocal
		}
		e.table.Slots[i].Posted++
	}
	e.out[kind]++
	e.busy++
	return i, nil
}

// end completes what begin began. After an answer that ends the connection it does that, too. StatusDisconnected
// undoes begin, and is returned as the error of an operation that was not posted.
func (e *endpoint) end(ctx uint64, slot int32, kind provider.Op, st provider.Status) error {
	e.lock()
	e.busy--
	if st == statusLost {
		e.stuck.Push(op{ctx, slot, kind})
		e.ending()
		e.unlock()
		return nil
	}
	if slot != regtable.None {
		e.table.Slots[slot].Posted--
	}
	var err error
	wake := false
	if st == provider.StatusDisconnected {
		e.out[kind]--
		err = st
		if e.closed {
			err = provider.StatusClosed
		}
	} else {
		wake = e.push(comp{ctx: ctx, op: kind, status: st, urgent: st != provider.StatusOK})
	}
	if e.ending() && !wake {
		wake = e.rouse(true)
	}
	e.unlock()
	if wake {
		e.callWake()
	}
	switch st {
	case provider.StatusOK, provider.StatusAborted, provider.StatusDisconnected:
	default:
		e.sever(st)
	}
	return err
}

// ending follows the fall of a count. It reports that the end of the connection, which has waited for that, can be
// polled now. Called with the lock held.
func (e *endpoint) ending() bool {
	e.signal()
	return e.gate&gateOver != 0 && e.settled()
}

// sendLocal sends from registered memory.
func (e *endpoint) sendLocal(s *provider.Send) error {
	if len(s.Local.Bytes) > e.attr.MaxMessage {
		return provider.StatusTooLong
	}
	i, err := e.begin(&s.Local, provider.OpSend, true)
	if err != nil {
		return err
	}
	return e.end(s.Context, i, provider.OpSend, e.peer.deliver(s.Local.Bytes, nil, s.Solicited, s.Open))
}

// deliver puts a message, a and b after each other, into the first receive of e, the receiving end. The answer is
// StatusOK, StatusDisconnected where e takes nothing, statusLost, or the status with which the connection must end.
func (e *endpoint) deliver(a, b []byte, solicited, open bool) provider.Status {
	n := len(a) + len(b)
	e.lock()
	for e.copying && e.gate == 0 {
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
	if e.recvs.Len() == 0 {
		hold := !e.started && n <= provider.MaxFirstMessage
		if hold {
			e.held = append(append(make([]byte, 0, max(n, 1)), a...), b...)
			e.heldUrgent = solicited
			e.started = true
		}
		e.unlock()
		if hold {
			return provider.StatusOK
		}
		return provider.StatusNotReady
	}
	e.started = true
	r := *e.recvs.Front()
	e.recvs.Skip()
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
		// The receive has left the queue but its registration is still in use, and Close waits for copying.
		e.copying = true
		e.unlock()
		k := copy(dst, a)
		copy(dst[k:], b)
		e.lock()
		e.copying = false
		e.signal()
	}
	e.table.Slots[r.slot].Posted--
	if open && st == provider.StatusOK {
		c.open, e.room = true, growing(&e.table.Slots[r.slot], &r, e.peer)
	}
	wake := e.push(c) // if the connection has ended meanwhile, report is still to come, as shut waits for copying
	e.unlock()
	if wake {
		e.callWake()
	}
	return st
}

// deliverHeld moves the first message into the receive that has just been posted. Called with the lock held, which it releases.
func (e *endpoint) deliverHeld() error {
	m := e.held
	e.held = nil
	r := *e.recvs.Front()
	e.recvs.Skip()
	s := &e.table.Slots[r.slot]
	s.Posted--
	c := comp{ctx: r.ctx, n: uint32(len(m)), op: provider.OpRecv, urgent: e.heldUrgent}
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

// PostWrite implements provider.Endpoint.
func (e *endpoint) PostWrite(w provider.RDMA) error { return e.rdma(&w, provider.OpWrite) }

// PostRead implements provider.RDMAReader.
func (e *endpoint) PostRead(r provider.RDMA) error {
	if !e.attr.RDMARead {
		return provider.StatusUnsupported
	}
	return e.rdma(&r, provider.OpRead)
}

func (e *endpoint) rdma(r *provider.RDMA, kind provider.Op) error {
	if len(r.Local.Bytes) > e.attr.MaxRDMA {
		return provider.StatusTooLong
	}
	i, err := e.begin(&r.Local, kind, e.attr.LocalRegistration)
	if err != nil {
		return err
	}
	return e.end(r.Context, i, kind, e.peer.reach(r, kind))
}

// reach does an RDMA transfer to or from the memory of e, its owner. The mutex is not held while bytes move; the counts
// keep Deregister and Close waiting instead.
func (e *endpoint) reach(r *provider.RDMA, kind provider.Op) provider.Status {
	right := provider.RightWrite
	if kind == provider.OpRead {
		right = provider.RightRead
	}
	local := r.Local.Bytes
	e.lock()
	if e.gate != 0 {
		lost := e.gate&gateLost != 0
		e.unlock()
		if lost {
			return statusLost
		}
		return provider.StatusDisconnected
	}
	i, ok := e.table.Remote(regtable.Words(&r.Remote), right, r.Offset, len(local))
	if !ok {
		e.unlock()
		return provider.StatusAccess
	}
	s := &e.table.Slots[i]
	mem := s.Bytes[r.Offset:][:len(local)]
	s.Access++
	e.access++
	e.unlock()

	st := provider.StatusOK
	piece := rdmaPiece
	if len(local) > largeRDMA {
		piece = largeRDMAPiece
	}
	for {
		n := min(len(local), piece)
		if kind == provider.OpRead {
			copy(local[:n], mem)
		} else {
			copy(mem, local[:n])
		}
		local, mem = local[n:], mem[n:]
		e.lock()
		if len(local) == 0 {
			break
		}
		if e.gate != 0 {
			st = provider.StatusAborted
			break
		}
		if e.table.Slots[i].State != regtable.Live {
			st = provider.StatusAccess
			break
		}
		e.unlock()
	}
	e.table.Slots[i].Access--
	e.access--
	e.signal()
	e.unlock()
	return st
}
