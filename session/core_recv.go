package session

import (
	"encoding/binary"
	"syscall"

	"sansock/provider"
)

// poll takes completions and acts on them. It returns how many there were.
func (c *core) poll() int {
	total := 0
	for {
		n := c.ep.Poll(c.cq[:])
		for i := range n {
			c.complete(&c.cq[i])
		}
		total += n
		if n < len(c.cq) {
			break
		}
	}
	if !c.fast {
		c.pump()
	}
	return total
}

// complete acts on one completion. It leaves the fast path where that is of more than bytes of the stream, or credits.
func (c *core) complete(p *provider.Completion) {
	ok := p.Status == provider.StatusOK
	if !ok || p.Op > provider.OpSend || p.Op == provider.OpSend && (p.Context >= bufferContext || c.send.want != 0) {
		c.fast = false
	}
	switch p.Op {
	case provider.OpRecv:
		gen, slot := splitContext(p.Context)
		c.recv[gen].posted--
		if ok && c.err == nil {
			c.receive(gen, slot, p.Len)
		}
		c.note(failure(p.Status))
	case provider.OpSend:
		c.sendDone(p.Context)
		if !ok && p.Status != provider.StatusAborted {
			c.disconnected(p.Status)
		}
	case provider.OpRead:
		c.note(c.pulled(p.Status))
	case provider.OpWrite:
		c.note(c.pushed(p.Status))
	case provider.OpDisconnect:
		c.disconnected(p.Status)
	}
}

// note breaks the connection where an operation has failed.
func (c *core) note(err error) {
	if err != nil {
		c.fail(err, abortFailed)
	}
}

// receive acts on one message, n bytes in a receive buffer. The peer may still be able to change these bytes: the header
// is decoded once, and the payload is only copied.
func (c *core) receive(gen, slot, n int) {
	r := &c.recv[gen]
	if n > r.size {
		c.fail(protocolError("message of %d bytes in a buffer of %d", n, r.size), abortProtocol)
		return
	}
	buf := r.segment(slot).Bytes[:n]
	if c.fast && n > headerSize && c.receiveFast(gen, slot, buf) {
		return
	}
	h, err := parseHeader(buf)
	if err == nil {
		err = c.granted(h)
	}
	if err != nil {
		c.fail(err, abortProtocol)
		return
	}
	c.received++
	if h.flags&^flagOpen != 0 || h.kind != kindData && h.kind != kindCredit {
		c.fast = false
		c.noteFlags(h)
	}
	kept := false
	switch h.kind {
	case kindData:
		kept, err = c.dataArrived(gen, slot, buf[headerSize:])
	case kindOffer:
		kept, err = c.offerArrived(gen, slot, h.arg, buf[headerSize:])
	default:
		err = c.act(h, buf[headerSize:])
	}
	switch err {
	case nil:
	case errUnwanted:
		c.drop()
	case syscall.ECONNRESET:
		c.fail(err, abortReset)
	default:
		c.fail(err, abortProtocol)
	}
	if !kept {
		c.repost(gen, slot)
	}
	if c.fast && h.kind == kindCredit {
		c.creditIfDue()
	}
}

// receiveFast is receive for bytes of the stream in an open message. It reports false, and has done nothing, where it is
// something else. The first half of the header is loaded once.
func (c *core) receiveFast(gen, slot int, buf []byte) bool {
	h := binary.LittleEndian.Uint64(buf)
	if h&0xffff != uint64(kindData)|flagOpen<<8 || h>>32 > uint64(len(buf)-headerSize) {
		return false
	}
	if credits := int(h >> 16 & 0xffff); credits > 0 {
		if err := c.win.add(credits); err != nil {
			c.fail(err, abortProtocol)
			return true
		}
	}
	c.received++
	c.take(gen, slot, buf[headerSize:])
	return true
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
		return false, errUnwanted
	case len(payload) == 0:
	case c.bothShut():
		// As TCP: CloseRead alone drops what arrives, but with both directions closed it resets the connection.
		return false, syscall.ECONNRESET
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
	c.open = false // who answers has taken our last message: the next one need not be tried in vain
	c.queued += len(data)
	c.sinceGrow += len(data)
	c.arrived += uint64(len(data))
	c.queue.Push(item{data: data, gen: int32(gen), slot: int32(slot)})
}
