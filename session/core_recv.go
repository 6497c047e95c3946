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
	c.stats.MessagesReceived++
	if h.flags&flagWant != 0 {
		c.peerWant = true
	}
	if h.flags&flagDry != 0 {
		c.dried()
	}
	if h.flags&flagBlocked != 0 {
		c.peerStuck = true
	}
	if h.flags&flagMore != 0 {
		c.grow()
	}
	if h.flags&flagDrain != 0 {
		c.draining = true
	}
	if h.kind != kindCredit && h.kind != kindData {
		c.repay = true
	}
	payload := buf[headerSize:]
	switch h.kind {
	case kindData:
		if c.eof || c.in.active {
			err = protocolError("data after the end, or in the middle of an offer")
		} else if c.closing || c.aborting {
			// Nobody will read it: the peer has to know that it was lost.
			c.abort(abortReset)
		} else if c.shut() && len(payload) > 0 {
			// As TCP: CloseRead alone drops what arrives, but with both directions closed it resets the connection.
			c.fail(syscall.ECONNRESET, abortReset)
		} else if len(payload) > 0 && !c.deaf {
			c.take(gen, slot, payload)
			return
		}
	case kindCredit, kindNop, kindReady, kindResize:
	case kindFin:
		if c.eof || c.in.active {
			err = protocolError("second end, or end in the middle of an offer")
		}
		c.eof = true
	case kindClose:
		c.eof, c.peerGone, c.ackWanted = true, true, true
		if c.closeSent {
			c.done = true // both have closed; neither waits for the other
		}
	case kindClosed:
		if !c.closeSent {
			err = protocolError("closed without close")
		}
		c.done = true
	case kindAbort:
		c.aborted(h.arg)
	case kindPing:
		c.pong, c.pongWanted = h.arg, true
	case kindPong:
	case kindOffer:
		var o offer
		if o, err = parseOffer(payload); err == nil {
			err = c.offered(h.arg, o)
		}
		if first := payload[min(offerSize, len(payload)):]; err == nil && len(first) > 0 && c.in.active {
			c.take(gen, slot, first) // the offer itself follows all that is queued
			return
		}
	case kindTarget:
		var t target
		if t, err = parseTarget(payload); err == nil {
			err = c.targeted(h.arg, t)
		}
	case kindDone, kindWrote:
		var count uint64
		if count, err = parseCount(payload); err == nil {
			if h.kind == kindDone {
				c.out.direct = h.flags&flagDirect != 0
				err = c.offerDone(h.arg, count)
			} else {
				err = c.wrote(h.arg, count)
			}
		}
	case kindRevoke:
		err = c.revoked(h.arg)
	case kindUntarget:
		err = c.untargeted(h.arg)
	case kindUrgent:
		err = c.urgentArrived(h.arg, payload)
	case kindTaken:
		err = c.urgentTaken(h.arg)
	case kindSuspend:
		err = c.suspendAsked(h.arg)
	case kindSuspended:
		err = c.suspendAnswered(h.arg, payload)
	case kindGoOn:
		c.goOn(h.arg)
	default:
		err = protocolError("unexpected %v", h.kind)
	}
	if err != nil {
		c.fail(err, abortProtocol)
		return
	}
	c.repost(gen, slot)
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

// closeRead ends reading where the queue does. What arrives later is dropped.
func (c *core) closeRead() {
	c.deaf = true
	if c.in.active && !c.in.busy {
		c.endOffer(c.in.total)
		c.pump()
	}
	if c.urg != nil {
		c.deafUrgent()
	}
}

// aborted notes that the peer dropped the connection.
func (c *core) aborted(code uint64) {
	c.done, c.reset = true, true
	if c.err == nil && !c.closing {
		switch {
		case code == abortTimeout:
			c.err = syscall.ETIMEDOUT
		case c.eof:
			// As TCP: a reset after the peer's FIN only breaks writing, and no write is taken any more.
			c.pipeTold = true
		default:
			c.err = syscall.ECONNRESET
		}
	}
	c.peerGone = true
}

// take appends the data in a receive buffer to the stream; the buffer stays out until it is read.
func (c *core) take(gen, slot int, data []byte) {
	c.recv[gen].held++
	c.shrinking = false
	c.queued += len(data)
	c.sinceGrow += len(data)
	c.stats.BytesCopiedIn += uint64(len(data))
	c.queue.push(item{data: data, gen: int32(gen), slot: int32(slot)})
}

// repost gives a receive buffer to the provider again. The credit for it goes out with the next message.
func (c *core) repost(gen, slot int) {
	r := &c.recv[gen]
	if r.retired || c.ended || c.done {
		r.release(c.ep)
		return
	}
	if err := c.ep.PostRecv(provider.Recv{Context: recvContext(gen, slot), Buffer: r.segment(slot)}); err != nil {
		if s := provider.StatusOf(err); s != provider.StatusDisconnected && s != provider.StatusClosed {
			c.fail(err, abortFailed)
		}
		return
	}
	r.posted++
	c.owed++
}

// creditIfDue returns credits in a message of their own when half of the buffers is owed. Those that the application keeps
// count as well, as the peer may wait for credits with just half of them out.
func (c *core) creditIfDue() {
	due := c.owed > 1 && c.owed+c.lent >= c.recv[c.cur].count/2
	// What is held waits for dry, which takes a credit, whatever the peer has spent its last ones on.
	low := (c.repay || c.told && len(c.held) > 0) && c.owed > 0 && c.recv[0].posted+c.recv[1].posted-c.owed < controlReserve
	if (due || low) && c.win.credits > 0 && c.slotFree() && !c.ended && (!c.abortSent || c.muted) {
		c.post(kindCredit, 0, 0, 0, nil, low)
	}
}

// lend takes the next piece out of the stream. It is given back by returned.
func (c *core) lend() (it item, ok bool, err error) {
	if c.queue.len() == 0 {
		c.poll()
	}
	if c.queue.len() == 0 {
		if c.in.active && !c.deaf {
			return it, false, nil
		}
		return it, false, c.readEnd()
	}
	it = c.queue.pop()
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
	for i := range c.queue.len() {
		it := c.queue.pop()
		if it.gen < 0 || c.spilled+len(it.data) > c.readBuffer {
			c.queue.push(it)
			continue
		}
		// The newest in the queue is the one before it only from the second round on: at first it is the last
		// that is to be gone through.
		c.keep(it.data, i > 0)
		c.consumed(&it)
	}
	c.peerStuck = c.recv[0].held+c.recv[1].held > 0
	c.full = c.peerStuck
}

// keep appends data to the stream in a buffer of our own: the last one, if follows says that this is where the stream ends,
// and it has room, or a new one.
func (c *core) keep(data []byte, follows bool) {
	c.spilled += len(data)
	if follows {
		if last := c.queue.back(); last.gen < 0 && cap(last.data)-len(last.data) >= len(data) {
			last.data = append(last.data, data...)
			return
		}
	}
	own := pool.Get(max(len(data), spillChunk))
	c.queue.push(item{data: own[:copy(own, data)], own: own, gen: -1})
}

// spillChunk is the least that a buffer of our own takes, and so bounds what many small pieces of the stream cost.
const spillChunk = 16 << 10

// grow replaces the receive region by the next larger one, if the flow is sustained and the last change is over.
func (c *core) grow() {
	if c.level+1 >= len(c.levels) || c.sinceGrow < c.growAt || c.level > 0 && c.sinceGrow < sustained*c.recv[c.cur].bytes() {
		return
	}
	c.changeLevel(c.level + 1)
}

// sustained is how many times its receive region a flow has to fill before it gets a larger one.
const sustained = 2

// growAgain is how much a flow has to bring, at least, after growing has failed, until that is tried again.
const growAgain = 1 << 20

// shrink returns to the smallest receive region, unless there is unread data. Buffers left of an earlier change have
// to be used up before.
func (c *core) shrink() {
	switch {
	case c.level == 0 || c.queue.len() > 0 || c.paused:
		c.shrinking = false
	case c.recv[c.cur^1].live():
		c.drainAsked = c.drainAsked || !c.shrinking
		c.shrinking = true
	default:
		c.shrinking = false
		c.changeLevel(0)
	}
}

func (c *core) changeLevel(to int) bool {
	other := c.cur ^ 1
	if c.recv[other].live() || c.growWanted || c.err != nil || c.ended || c.done || c.aborting {
		return false
	}
	if err := c.recv[other].open(c.ep, other, c.levels[to]); err != nil {
		c.stats.GrowFailures++
		// There may be memory later. The more has been received, the less it matters what trying again costs.
		c.growAt = c.sinceGrow + min(max(c.sinceGrow, growAgain), 256*growAgain)
		if c.recv[other].posted == 0 {
			c.recv[other].release(c.ep)
		} else {
			// Half posted, and no way to take that back.
			c.fail(err, abortFailed)
		}
		return false
	}
	// From here on old buffers are not posted again; those still owed are granted with the resize.
	c.recv[c.cur].retired = true
	c.drainSize = to < c.level
	c.cur, c.level, c.sinceGrow = other, to, 0
	c.growAt = 0
	c.growWanted = true
	return true
}
