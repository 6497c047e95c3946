package session

import (
	"syscall"

	pool "github.com/libp2p/go-buffer-pool"

	"sansock/provider"
)

// receive acts on one message, n bytes in a receive buffer. The peer may still be able to change these bytes: the header
// is decoded once, and the payload is only copied.
func (c *core) receive(gen, slot, n int) {
	r := &c.recv[gen]
	if n > r.size {
		c.fail(protocolError("message of %d bytes in a buffer of %d", n, r.size), abortProtocol)
		return
	}
	buf := r.segment(slot).Bytes[:n]
	h, err := parseHeader(buf)
	if err == nil {
		err = c.granted(h)
	}
	if err != nil {
		c.fail(err, abortProtocol)
		return
	}
	c.received++
	c.noteFlags(h)
	kept := false
	switch h.kind {
	case kindData:
		kept, err = c.dataArrived(gen, slot, buf[headerSize:])
	case kindOffer:
		kept, err = c.offerArrived(gen, slot, h.arg, buf[headerSize:])
	default:
		err = c.act(h, buf[headerSize:])
	}
	if err != nil {
		c.fail(err, abortProtocol)
	} else if !kept {
		c.repost(gen, slot)
	}
}

// noteFlags acts on what a message says besides.
func (c *core) noteFlags(h header) {
	if h.flags&flagBlocked != 0 {
		c.peerBlocked = true
	}
	if h.flags&flagMore != 0 {
		c.grow()
	}
	if h.flags&flagDrain != 0 {
		c.want(letterUseUp)
	}
	if h.kind != kindCredit && h.kind != kindData {
		c.replenish = true
	}
}

// dataArrived takes bytes of the stream. kept: the buffer stays out until they are read.
func (c *core) dataArrived(gen, slot int, payload []byte) (kept bool, err error) {
	switch {
	case c.reading == readEOF || c.in.active:
		return false, protocolError("data after the end, or in the middle of an offer")
	case c.life >= lifeClosing:
		c.drop() // nobody will read it: the peer has to know that it was lost
	case len(payload) == 0:
	case c.bothShut():
		// As TCP: CloseRead alone drops what arrives, but with both directions closed it resets the connection.
		c.fail(syscall.ECONNRESET, abortReset)
	case c.reading == readOpen:
		c.take(gen, slot, payload)
		return true, nil
	}
	return false, nil
}

// offerArrived begins a large write of the peer's.
func (c *core) offerArrived(gen, slot int, id uint64, payload []byte) (kept bool, err error) {
	o, err := parseOffer(payload)
	if err == nil {
		err = c.offered(id, o)
	}
	if err != nil {
		return false, err
	}
	if first := payload[offerSize:]; len(first) > 0 && c.in.active {
		c.take(gen, slot, first) // the offer itself follows all that is queued
		return true, nil
	}
	return false, nil
}

// act acts on a message that is neither data nor an offer.
func (c *core) act(h header, payload []byte) error {
	switch h.kind {
	case kindCredit, kindNop, kindReady, kindResize, kindPong:
		return nil
	case kindFin, kindClose, kindClosed, kindAbort, kindPing:
		return c.actEnd(h)
	case kindTarget:
		t, err := parseTarget(payload)
		if err != nil {
			return err
		}
		return c.targeted(h.arg, t)
	case kindDone, kindWrote:
		n, err := parseCount(payload)
		if err != nil {
			return err
		}
		if h.kind == kindWrote {
			return c.wrote(h.arg, n)
		}
		return c.offerDone(h.arg, n, h.flags&flagDirect != 0)
	case kindRevoke:
		c.revoked(h.arg)
	case kindUntarget:
		c.untargeted(h.arg)
	case kindUrgent:
		return c.urgentArrived(h.arg, payload)
	case kindTaken:
		return c.urgentTaken(h.arg)
	case kindSuspend:
		return c.suspendAsked(h.arg)
	case kindSuspended:
		return c.suspendAnswered(h.arg, payload)
	case kindGoOn:
		c.wentOn(h.arg)
	default:
		return protocolError("unexpected %v", h.kind)
	}
	return nil
}

// actEnd acts on messages about the end of the connection.
func (c *core) actEnd(h header) error {
	switch h.kind {
	case kindFin:
		if c.reading == readEOF || c.in.active {
			return protocolError("second end, or end in the middle of an offer")
		}
		c.reading = readEOF
	case kindClose:
		c.reading, c.peer = readEOF, max(c.peer, peerClosed)
		c.want(letterClosed)
		if c.life == lifeCloseSent {
			c.life = lifeDone // both have closed; neither waits for the other
		}
	case kindClosed:
		if c.life < lifeCloseSent {
			return protocolError("closed without close")
		}
		c.life = lifeDone
	case kindAbort:
		c.aborted(h.arg)
	case kindPing:
		c.pong = h.arg
		c.want(letterPong)
	}
	return nil
}

// granted takes the credits of a message.
func (c *core) granted(h header) error {
	if h.kind == kindResize {
		// The arg is the new size and, above it, the buffers of the old size still to be granted.
		if old := int(h.arg >> 32); old > 0 {
			if err := c.win.add(old); err != nil {
				return err
			}
		}
		size := min(int(uint32(h.arg)), maxBuffer, c.attr.MaxMessage)
		if err := c.win.resize(int(h.credits), size); err != nil {
			return err
		}
		c.resized(h.flags&flagDrain != 0)
		return nil
	}
	if h.credits > 0 {
		return c.win.add(int(h.credits))
	}
	return nil
}

// resized acts on new receive buffers of the peer.
func (c *core) resized(drain bool) {
	// No larger than our own buffers get: a peer must not decide how much memory we use.
	size := min(c.win.newest(), c.levels[len(c.levels)-1].size)
	if size > max(c.send.size, c.attr.MaxInline) || drain && c.send.count > 0 {
		c.send.want = size
		c.resizeSends()
	}
}

// take appends the data in a receive buffer to the stream; the buffer stays out until it is read.
func (c *core) take(gen, slot int, data []byte) {
	c.recv[gen].held++
	c.shrinking = false
	c.queued += len(data)
	c.sinceGrow += len(data)
	c.arrived += uint64(len(data))
	c.queue.Push(item{data: data, gen: int32(gen), slot: int32(slot)})
}

// repost gives a receive buffer to the provider again. The credit for it goes out with the next message.
func (c *core) repost(gen, slot int) {
	r := &c.recv[gen]
	if r.retired || c.line.state == lineEnded || c.life == lifeDone {
		r.release(c.ep)
		return
	}
	p := provider.Recv{Context: recvContext(gen, slot), Buffer: r.segment(slot)}
	if err := c.ep.PostRecv(p); err != nil {
		if s := provider.StatusOf(err); s != provider.StatusDisconnected && s != provider.StatusClosed {
			c.fail(err, abortFailed)
		}
		return
	}
	r.posted++
	c.ungranted++
}

// consumed gives the memory of a piece that was read back.
func (c *core) consumed(it *item) {
	if it.gen < 0 {
		pool.Put(it.own)
		return
	}
	c.recv[it.gen].held--
	c.repost(int(it.gen), int(it.slot))
}

// readable reports that the Read can go on: read would return something, or an end, or its piece has ended.
func (c *core) readable() bool {
	if c.in.busy && c.in.user {
		return false
	}
	return c.queue.Len() > 0 || c.in.ready() || c.reading != readOpen || c.err != nil || c.line.state == lineEnded
}

// read moves received data into p. When it returns 0 and no error, there is nothing yet, or an offer that can be pulled.
func (c *core) read(p []byte) (int, error) {
	if c.queue.Len() == 0 {
		c.poll()
	}
	n := 0
	for n < len(p) && c.queue.Len() > 0 {
		it := c.queue.Front()
		m := copy(p[n:], it.data)
		n += m
		if it.gen < 0 {
			c.spilled -= m
			c.full = false
		}
		if m < len(it.data) {
			it.data = it.data[m:]
			break
		}
		c.consumed(it)
		c.queue.Drop()
	}
	c.queued -= n
	if n > 0 {
		if c.peerBlocked && c.recv[0].held+c.recv[1].held == 0 {
			c.peerBlocked = false // everything is taken: its Write goes on
		}
		c.creditIfDue()
		return n, nil
	}
	if c.fast || c.in.active && c.reading != readShut {
		return 0, nil
	}
	return 0, c.readEnd(c.line.state == lineEnded)
}

// lend takes the next piece out of the stream. It is given back by returned.
func (c *core) lend() (it item, ok bool, err error) {
	if c.queue.Len() == 0 {
		c.poll()
	}
	if c.queue.Len() == 0 {
		if c.in.active && c.reading != readShut {
			return it, false, nil
		}
		return it, false, c.readEnd(c.line.state == lineEnded)
	}
	it = c.queue.Pop()
	c.queued -= len(it.data)
	if it.gen < 0 {
		c.spilled -= len(it.data)
		c.full = false
		return it, true, nil
	}
	if c.lent++; c.lent > c.recv[c.cur].count/4 {
		// Whoever keeps so many must not keep the peer from sending.
		own := pool.Get(len(it.data))
		copy(own, it.data)
		c.returned(it)
		it = item{data: own, own: own, gen: -1}
	}
	c.creditIfDue()
	return it, true, nil
}

// returned takes back a piece that was lent.
func (c *core) returned(it item) {
	if it.gen >= 0 {
		c.lent--
	}
	c.consumed(&it)
	c.creditIfDue()
}

// spill moves received data out of the receive buffers into memory of our own, as far as the limit allows, so that a
// Write of the peer goes on although nobody reads, as it would over TCP.
func (c *core) spill() {
	for i := range c.queue.Len() {
		it := c.queue.Pop()
		if it.gen < 0 || c.spilled+len(it.data) > c.readBuffer {
			c.queue.Push(it)
			continue
		}
		// In the first round the newest in the queue is not the one before it: what is still to be gone through is.
		c.keep(it.data, i > 0)
		c.consumed(&it)
	}
	c.peerBlocked = c.recv[0].held+c.recv[1].held > 0
	c.full = c.peerBlocked
}

// markUnread has the provider know whether the application has yet to read something, for the case that this process
// ends.
func (c *core) markUnread() {
	if unread := c.queue.Len() > 0 || c.in.active; unread != c.unread && c.appender != nil {
		c.unread = unread
		c.appender.Unread(unread)
	}
}
