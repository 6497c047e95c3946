package session

import (
	"encoding/binary"

	"sansock/provider"
)

// canCalm reports that the next message of the stream, in either direction, needs nothing but to be sent, or taken.
func (c *core) canCalm() bool {
	return !c.in.active && !c.out.active && !c.pending() && !c.peerStuck && !c.aside && !c.shrinking && c.buffer == bufferNone &&
		!c.finWanted && !c.eof && !c.deaf && !c.closing && !c.paused && !c.muted &&
		c.err == nil && !c.ended && !c.done && !c.peerGone && !c.reset && !c.aborting && !c.abortSent
}

// writeCalm sends p as one message, or gathers it, where that is all there is to do on a calm core.
func (c *core) writeCalm(p []byte) bool {
	if len(p) == 0 || len(p) > smallWrite || c.threshold > 0 && len(p) >= c.threshold {
		return false
	}
	if c.flow {
		return c.gather(p)
	}
	if len(c.held) > 0 {
		n := len(c.held) + len(p)
		if n > cap(c.held) || n > c.gatherLimit() || c.poll() > 0 {
			return false
		}
		c.held = append(c.held, p...)
		return true
	}
	if n := headerSize + len(p); n > c.attr.MaxInline || n > c.win.size() || c.win.short() {
		return false
	}
	c.small = true
	c.post(kindData, 0, 0, 0, p, false)
	c.stats.BytesCopiedOut += uint64(len(p))
	return true
}

// completeCalm is complete for what leaves a calm core calm. It reports false, and has done nothing, where it is something else.
func (c *core) completeCalm(p *provider.Completion) bool {
	switch p.Op {
	case provider.OpRecv:
		gen, slot := splitContext(p.Context)
		r := &c.recv[gen]
		if p.Len < headerSize || p.Len > r.size {
			return false
		}
		buf := r.segment(slot).Bytes[:p.Len]
		// The first half of the header in one look, as the peer may change it at any time.
		h := binary.LittleEndian.Uint64(buf)
		switch {
		case h>>32 != uint64(p.Len-headerSize):
			return false
		case h&0xffff == uint64(kindData) && p.Len > headerSize:
		case h&0xffff == uint64(kindData)|flagWant<<8 && p.Len > headerSize:
			c.peerWant = true
		case h&0xffff == uint64(kindCredit) && p.Len == headerSize:
		default:
			return false
		}
		r.posted--
		if credits := int(h >> 16 & 0xffff); credits > 0 {
			if err := c.win.add(credits); err != nil {
				c.fail(err, abortProtocol)
				return true
			}
		}
		c.stats.MessagesReceived++
		if p.Len == headerSize {
			c.repost(gen, slot)
			c.creditIfDue()
		} else {
			c.take(gen, slot, buf[headerSize:])
		}
		return true
	case provider.OpSend:
		if p.Context >= bufferContext || c.send.want != 0 {
			return false
		}
		c.sent(p.Context)
		return true
	}
	return false
}
