package emu

import "sansock/provider"

const (
	// copyUnderLock is the longest message that is copied with the receiver's lock held: up to
	// there the copy is cheaper than taking the lock again.
	copyUnderLock = 17 << 10

	// An RDMA transfer is copied in pieces, and between them it is seen whether it is still
	// allowed. Copies of 1 MiB and more bypass the caches: that is twice as fast for memory which
	// is not in them, and much slower for what is, or will be read next. So only transfers beyond
	// the caches' size are copied in large pieces.
	rdmaPiece      = 256 << 10
	largeRDMA      = 8 << 20
	largeRDMAPiece = 4 << 20

	// maxMessage bounds Attributes.MaxMessage.
	maxMessage = 1 << 30
)

// statusLost is what deliver and reach return where the link swallows everything: there will be no
// answer.
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
	if p.rq.posted.Len() == 0 || p.gate != 0 || n > copyUnderLock || p.rq.copying {
		p.unlock()
		return e.sendInline(&s)
	}
	r := p.rq.posted.Front()
	if n > int(r.size) {
		p.unlock()
		return e.sendInline(&s)
	}
	b := &p.table.Slots[r.slot]
	k := copy(b.Bytes[r.off:], s.Inline[0])
	copy(b.Bytes[r.off+k:], s.Inline[1])
	b.Posted--
	p.rq.first = firstTaken
	c := comp{ctx: r.ctx, n: uint32(n), op: provider.OpRecv, urgent: s.Solicited, open: s.Open}
	if s.Open {
		p.rq.room = growing(b, r, e)
	}
	p.rq.posted.Skip()
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
	e.cq.posted[provider.OpSend]++ // Poll takes it off again
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
	if e.life != lifeOpen {
		return provider.StatusClosed
	}
	return provider.StatusDisconnected
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
