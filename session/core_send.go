package session

import (
	"slices"
	"syscall"

	pool "github.com/libp2p/go-buffer-pool"

	"sansock/provider"
)

// smallWrite is the size up to which writes are gathered while credits are short, and gatherMax what one message may gather.
// Larger writes take a buffer each: copying them once more would cost more than the message.
const (
	smallWrite = 8 << 10
	gatherMax  = 64 << 10
)

// slotFree reports that a control message has memory to leave from.
func (c *core) slotFree() bool {
	return (c.attr.MaxInline >= controlSize || len(c.send.free) > 0) && c.late == nil
}

// controlSize bounds a control message.
const controlSize = headerSize + offerSize

// canControl reports that a control message may be sent now.
func (c *core) canControl() bool { return c.win.control() && c.slotFree() && !c.ended && !c.abortSent }

// canData reports that stream bytes may be sent now. One slot of the send region is left to control messages. A region
// that is to be replaced takes no more data, so that it becomes idle.
func (c *core) canData() bool {
	return c.win.data() && !c.ended && !c.abortSent && !c.paused && c.late == nil &&
		(c.attr.MaxInline >= min(c.win.size(), c.send.size) || len(c.send.free) > 1 && c.send.want == 0)
}

// payload is how many bytes the next message may carry behind its header.
func (c *core) payload() int {
	return min(c.win.size(), max(c.attr.MaxInline, c.send.size)) - headerSize
}

// post sends one message: the header, fixed bytes which the caller has put behind it in scratch, and body.
// The caller has made sure of the credit, and of a slot.
func (c *core) post(k kind, flags uint8, arg uint64, fixed int, body []byte, solicited bool) {
	h := header{kind: k, flags: flags, length: uint32(fixed + len(body)), arg: arg}
	if k == kindResize {
		r := &c.recv[c.cur]
		h.credits = uint16(r.count)
		h.arg = uint64(r.size) | uint64(c.owed)<<32
	} else {
		h.credits = uint16(c.owed)
	}
	c.owed, c.repay = 0, false
	c.win.use()
	if k == kindData && c.small && (c.flow || c.win.short()) {
		h.flags |= flagWant
		c.flow, c.told = true, true
	}
	// What leaves too little for a control message wakes the peer, which may have to pay it back, see credit.go.
	solicited = solicited || !c.win.control()
	n := headerSize + fixed
	h.put(c.scratch[:])
	s := provider.Send{Context: inlineContext, Solicited: solicited}
	if n+len(body) <= c.attr.MaxInline {
		s.Inline = [2][]byte{c.scratch[:n], body}
	} else {
		slot := c.send.free[len(c.send.free)-1]
		c.send.free = c.send.free[:len(c.send.free)-1]
		s.Context = uint64(slot)
		s.Local = c.send.region.Segment(slot*c.send.size, n+len(body))
		copy(s.Local.Bytes, c.scratch[:n])
		copy(s.Local.Bytes[n:], body)
		c.inFlight++
	}
	c.postSend(s)
}

// postSend posts a message whose slot, if it has one, is in flight.
func (c *core) postSend(s provider.Send) {
	err := c.ep.PostSend(s)
	switch {
	case err == nil:
		c.stats.MessagesSent++
	case provider.StatusOf(err) == provider.StatusQueueFull:
		c.postpone(s)
	default:
		c.sent(s.Context) // there will be no completion
		c.postFailed(err)
	}
}

// postpone keeps a message for which the provider has no room at the moment. No other leaves before it: whether one can, all
// ask slotFree or canData.
func (c *core) postpone(s provider.Send) {
	if s.IsInline() {
		s.Inline = [2][]byte{slices.Concat(s.Inline[0], s.Inline[1]), nil}
	}
	c.late, c.calm = &s, false
}

// postLate tries again what was postponed, and reports that nothing is left of that.
func (c *core) postLate() bool {
	if c.late == nil {
		return true
	}
	s := *c.late
	c.late = nil
	c.postSend(s)
	return c.late == nil
}

// dropLate gives up what was postponed, after the end.
func (c *core) dropLate() {
	if c.late != nil {
		c.sent(c.late.Context)
		c.late = nil
	}
}

// postFailed acts on an error of a post. A peer that is gone is not noted before what it sent has been received.
func (c *core) postFailed(err error) {
	c.calm = false
	if c.muted {
		return // the peer may have gone, as it was to
	}
	switch provider.StatusOf(err) {
	case provider.StatusDisconnected, provider.StatusClosed:
		c.abortSent = true // nothing can be sent any more; OpDisconnect follows
	default:
		if c.err == nil {
			c.err = err
		}
		c.aborting, c.abortSent, c.done = true, true, true
	}
}

// write sends or gathers as much of p as can be without waiting.
func (c *core) write(p []byte) (int, error) {
	if c.win.short() {
		c.poll()
	}
	if c.writeOver() {
		if c.peerGone && !c.finWanted && c.err == nil && !c.pipeTold {
			// As TCP: the first write after the peer's close is taken, and only provokes a reset.
			c.pipeTold, c.reset = true, true
			return len(p), nil
		}
		return 0, c.writeEnd()
	}
	c.small = len(p) <= smallWrite
	if c.flow && c.gather(p) {
		return len(p), nil
	}
	n := 0
	for n < len(p) {
		rest := p[n:]
		if len(c.held) > 0 {
			m := c.hold(rest)
			n += m
			if m == len(rest) {
				break
			}
			if !c.canData() {
				break
			}
			c.flushHeld()
			continue
		}
		if !c.canData() {
			break
		}
		m := min(len(rest), c.payload())
		var flags uint8
		if m < len(rest) || c.win.short() {
			flags = flagMore
		}
		c.post(kindData, flags, 0, 0, rest[:m], false)
		c.stats.BytesCopiedOut += uint64(m)
		n += m
	}
	return n, nil
}

// writeNothing is the error of a write of no bytes. It does not provoke anything.
func (c *core) writeNothing() error {
	c.poll()
	if c.finWanted || c.err != nil || c.pipeTold {
		return c.writeEnd()
	}
	return nil
}

// sendBuffer sends the n bytes behind the head room of a registered region as one message, straight from there, if
// that is possible now. The memory is in use until the core's buffer is bufferDone.
func (c *core) sendBuffer(r provider.Region, n int) bool {
	if n == 0 || len(c.held) > 0 || headerSize+n > c.win.size() || headerSize+n <= c.attr.MaxInline ||
		c.threshold > 0 && n >= c.threshold || !c.win.data() || c.abortSent || c.paused || c.writeOver() || c.late != nil ||
		c.inFlight >= c.attr.MaxSends-1 {
		return false
	}
	h := header{kind: kindData, credits: uint16(c.owed), length: uint32(n)}
	c.owed, c.repay = 0, false
	c.win.use()
	h.put(r.Bytes)
	c.inFlight++
	c.buffer = bufferOut
	s := provider.Send{Context: bufferContext, Local: r.Segment(0, headerSize+n)}
	switch err := c.ep.PostSend(s); {
	case err == nil:
		c.stats.MessagesSent++
	case provider.StatusOf(err) == provider.StatusQueueFull:
		c.postpone(s)
	default:
		c.inFlight--
		c.buffer = bufferNone
		c.postFailed(err)
		return false
	}
	c.stats.BytesRDMAOut += uint64(n)
	return true
}

// Contexts of sends that have no slot; the others have its number.
const (
	bufferContext = 1 << 32 // sendBuffer
	inlineContext = 2 << 32 // completes only if it fails
)

// sent takes the memory of a message back.
func (c *core) sent(context uint64) {
	switch context {
	case inlineContext:
		return
	case bufferContext:
		c.buffer = bufferDone
	default:
		c.send.free = append(c.send.free, int(context))
		c.resizeSends()
	}
	c.inFlight--
}

const (
	bufferNone = iota
	bufferOut  // posted
	bufferDone // the memory may be used again
)

// writable reports that the Write can go on: write would take something, or fail, or its transfer wants it.
func (c *core) writable() bool {
	switch {
	case c.out.active:
		return c.outboundOver() || c.canPush()
	case c.buffer != bufferNone:
		return c.buffer == bufferDone
	}
	return c.canData() || c.writeOver()
}

// gatherLimit is how many bytes may be gathered.
func (c *core) gatherLimit() int { return min(c.payload(), gatherMax) }

// hold gathers bytes of a small write and returns how many fit.
func (c *core) hold(p []byte) int {
	limit := c.gatherLimit()
	if c.held == nil {
		c.held = pool.Get(limit)[:0]
	}
	m := min(len(p), max(0, min(limit, cap(c.held))-len(c.held)))
	c.held = append(c.held, p[:m]...)
	return m
}

// flushHeld sends gathered bytes as long as there are credits.
func (c *core) flushHeld() {
	sent := 0
	for sent < len(c.held) && c.canData() {
		m := min(len(c.held)-sent, c.payload())
		var flags uint8
		if c.win.short() {
			flags = flagMore
		}
		c.post(kindData, flags, 0, 0, c.held[sent:sent+m], false)
		c.stats.BytesCopiedOut += uint64(m)
		sent += m
	}
	if sent == len(c.held) {
		c.held = c.held[:0]
		if cap(c.held) < min(c.payload(), gatherMax) {
			c.dropHeld() // the peer's buffers have grown since
		}
	} else {
		c.held = c.held[:copy(c.held, c.held[sent:])]
	}
}

// dropHeld gives the empty gathering buffer back.
func (c *core) dropHeld() {
	if c.held != nil {
		pool.Put(c.held[:cap(c.held)])
		c.held = nil
	}
}

// pump sends what became possible: first what others wait for, then data, then the end.
func (c *core) pump() {
	if c.late != nil && !c.ended && !c.postLate() && !c.aborting {
		return
	}
	if c.abortSent || c.ended {
		if c.muted {
			c.creditIfDue()
		}
		return
	}
	if c.aborting {
		if c.win.credits > 0 && c.slotFree() {
			c.post(kindAbort, 0, c.abortCode, 0, nil, true)
		}
		// Without a credit the end of the connection says the same.
		c.abortSent, c.done = true, true
		return
	}
	if c.shrinking {
		c.shrink()
	}
	if c.growWanted && c.win.credits > 0 && c.slotFree() {
		c.growWanted = false
		var flags uint8
		if c.drainSize {
			flags = flagDrain
		}
		c.post(kindResize, flags, 0, 0, nil, true)
	}
	if c.drainAsked && c.canControl() {
		c.drainAsked = false
		c.post(kindNop, flagDrain, 0, 0, nil, true)
	}
	for c.draining && c.win.old() > 0 && c.canControl() {
		c.post(kindNop, 0, 0, 0, nil, c.win.old() == 1) // the last one is waited for
	}
	c.draining = c.draining && c.win.old() > 0
	if c.ackWanted && c.canControl() {
		c.ackWanted = false
		c.post(kindClosed, 0, 0, 0, nil, true)
	}
	if c.pongWanted && c.canControl() {
		c.pongWanted = false
		c.post(kindPong, 0, c.pong, 0, nil, false)
	}
	c.pumpInbound()
	c.pumpOutbound()
	c.tellBlocked()
	if len(c.held) > 0 && !c.flow {
		c.flushHeld()
	}
	if c.finWanted && len(c.held) > 0 {
		c.flushHeld()
	}
	if c.finWanted && !c.finSent && len(c.held) == 0 && !c.out.active && !c.paused && c.canControl() {
		c.finSent = true
		if c.closing {
			c.closeSent = true
			c.post(kindClose, 0, 0, 0, nil, true)
		} else {
			c.post(kindFin, 0, 0, 0, nil, true)
		}
	}
	if c.closing && !c.closeSent && c.finSent && !c.paused && c.canControl() {
		c.closeSent = true
		c.post(kindClose, 0, 0, 0, nil, true)
	}
	if c.aside {
		c.pumpAside()
	}
	if c.dry {
		c.dryUp()
	}
	c.creditIfDue()
}

// blocked reports that a Write waits for credits, and the peer has not been told.
func (c *core) blocked() bool {
	return !c.win.data() && !c.win.stuck && !c.win.telling && !c.ended && !c.abortSent
}

// block tells the peer that a Write waits for credits.
func (c *core) block() {
	c.win.telling = c.win.telling || c.blocked()
	c.tellBlocked()
}

// tellBlocked tells the peer that a Write waits, as soon as that can leave.
func (c *core) tellBlocked() {
	if c.win.data() {
		c.win.telling = false
	}
	if c.win.telling && c.canControl() {
		c.win.telling, c.win.stuck = false, true
		c.post(kindNop, flagBlocked|flagMore, 0, 0, nil, true)
	}
}

// ping asks the peer for a sign of life.
func (c *core) ping() {
	if c.canControl() {
		c.post(kindPing, 0, c.stats.MessagesSent, 0, nil, true)
	}
}

// resized acts on new receive buffers of the peer.
func (c *core) resized(drain bool) {
	// No larger than our own buffers get: a peer must not decide how much memory we use.
	size := min(c.win.grants[c.win.n-1].size, c.levels[len(c.levels)-1].size)
	if size > max(c.send.size, c.attr.MaxInline) || drain && c.send.count > 0 {
		c.send.want = size
		c.resizeSends()
	}
	if len(c.held) == 0 {
		c.dropHeld()
	}
}

// resizeSends replaces the region of outgoing messages, where that is wanted, as soon as none is on its way.
func (c *core) resizeSends() {
	if c.send.want == 0 || !c.send.idle() {
		return
	}
	if c.send.want > c.attr.MaxInline && c.attr.MaxSends >= minSends {
		// Without memory, or where one message at a time could leave from it, they just stay smaller.
		c.send.open(c.ep, min(busyReceives, c.attr.MaxSends), c.send.want)
	} else {
		c.send.close(c.ep)
	}
	c.send.want = 0
}

// closeWrite ends the stream to the peer after what was written.
func (c *core) closeWrite() {
	if !c.finWanted {
		c.finWanted = true
		c.pump()
	}
}

// close ends the connection. Unread data makes it a reset, as with TCP; otherwise what was written is still delivered
// and done becomes true when the peer has it.
func (c *core) close() {
	c.poll()
	if c.queue.len() > 0 || c.in.active {
		c.err = nil
		c.abort(abortReset)
		return
	}
	c.closing = true
	if c.err != nil || c.ended || c.peerGone {
		c.done = true
		return
	}
	c.finWanted = true
	c.pump()
}

// finish releases what the core holds, once nothing will be read or written. The endpoint is closed before.
func (c *core) finish() {
	for c.queue.len() > 0 {
		if it := c.queue.pop(); it.gen < 0 {
			pool.Put(it.own)
		} else {
			c.recv[it.gen].held--
		}
	}
	c.held = c.held[:0]
	c.dropHeld()
	c.dropInbound()
	c.dropOutbound()
	if c.regs != nil {
		c.regs.Close()
	}
	c.send.close(c.ep)
	for i := range c.recv {
		// What is lent stays until it is returned.
		r := &c.recv[i]
		r.retired, r.posted = true, 0
		r.release(c.ep)
	}
	c.queued, c.spilled = 0, 0
	if c.urg != nil {
		c.urg.queue = ring[urgentItem]{}
	}
	if c.err == nil {
		c.err = syscall.ECONNRESET
	}
}

// pending reports that something but gathered bytes waits to leave, or an RDMA read of nobody's is under way: what they wait
// for need not be solicited.
func (c *core) pending() bool {
	return c.late != nil || c.in.busy && c.in.read || c.finWanted && !c.finSent || c.growWanted || c.drainAsked || c.draining ||
		c.ackWanted || c.pongWanted || c.win.telling || c.in.doneWanted || c.in.targetWanted || c.in.untarget || c.send.want != 0 ||
		c.asideOut
}
