package emu

// Append implements provider.Appender. A message has been taken when its completion has left the
// queue. It is looked for at the end of the queue alone, so a completion of the receiver's own
// behind it ends its growth, too. While a long message is being copied it has been sent, but has no
// completion yet. Nobody is woken: the completion has done that, or whoever armed after it was told
// of it.
func (e *endpoint) Append(b []byte) bool {
	p := e.peer
	p.lock()
	if p.cq.ring.Len() == 0 || p.gate != 0 || p.rq.copying || len(b) > copyUnderLock {
		p.unlock()
		return false
	}
	c := p.cq.ring.Back()
	n := int(c.n)
	if !c.open || len(b) > len(p.rq.room)-n {
		p.unlock()
		return false
	}
	copy(p.rq.room[n:], b)
	c.n += uint32(len(b))
	p.unlock()
	return true
}

// Unread implements provider.Appender. The two ends share a process, and die together.
func (e *endpoint) Unread(bool) {}
