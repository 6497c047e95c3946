package session

import (
	"syscall"

	"sansock/provider"
)

// smallWrite is the size up to which writes grow the message before them. Larger ones take a message each: a reader
// that waits for its end would wait longer than a message costs.
const smallWrite = 8 << 10

// writeFast sends p, or adds it to the last message, where that is all there is to do. It reports false, and has done
// nothing, where it is not that simple.
func (c *core) writeFast(p []byte) bool {
	if uint(len(p)-1) >= smallWrite || c.threshold > 0 && len(p) >= c.threshold {
		return false
	}
	if !c.open || !c.extend(p) {
		if n := headerSize + len(p); n > c.attr.MaxInline || n > c.win.size() || c.win.short() {
			return false
		}
		c.postData(p, 0)
	}
	c.written += uint64(len(p))
	return true
}

// write sends as much of p as can be sent without waiting.
func (c *core) write(p []byte) (int, error) {
	if c.win.short() {
		c.poll()
	}
	if c.writeOver() {
		if c.writeLost() {
			return len(p), nil
		}
		return 0, c.writeEnd()
	}
	n := 0
	if len(p) <= smallWrite && c.line.state == lineUp && c.extend(p) {
		n = len(p)
	}
	for n < len(p) && c.canData() {
		m := min(len(p)-n, c.payload())
		var flags uint8
		if m < len(p)-n || c.win.short() {
			flags = flagMore
		}
		c.postData(p[n:n+m], flags)
		n += m
	}
	c.written += uint64(n)
	return n, nil
}

// writeNothing is the error of a write of no bytes. It does not provoke anything.
func (c *core) writeNothing() error {
	c.poll()
	if c.writing != writeOpen || c.err != nil || c.peer == peerReset {
		return c.writeEnd()
	}
	return nil
}

// sendBuffer sends the n bytes behind the head room of a registered region as one message, straight from there, if
// that is possible now.
func (c *core) sendBuffer(r provider.Region, n int) bool {
	if n == 0 || c.threshold > 0 && n >= c.threshold || c.writeOver() || !c.postBuffer(r, n) {
		return false
	}
	c.written += uint64(n)
	c.stats.BytesRDMAOut += uint64(n)
	return true
}

// writable reports that the Write can go on: write would take something, or fail, or its transfer wants it.
func (c *core) writable() bool {
	switch {
	case c.out.active:
		return c.outboundOver() || c.canPush()
	case c.buffer != bufferNone:
		return c.buffer == bufferDone
	}
	return c.canData() || c.writeOver() || c.line.state == lineEnded
}

// pump sends what became possible: letters in their order, then credits.
func (c *core) pump() {
	c.noteFault()
	if c.line.state != lineEnded && !c.postLate() && c.life != lifeAborting {
		return
	}
	if c.shrinking {
		c.shrink()
	}
	switch {
	case c.line.state >= lineShut:
		return
	case c.line.state == lineQuiet:
		c.creditIfDue()
		return
	case c.life == lifeAborting:
		c.sendAbort()
		return
	}
	if c.due != 0 {
		for l := range letters {
			if c.wanted(l) && c.sendLetter(l) {
				c.cancel(l)
			}
		}
	}
	if c.life == lifeSettling && c.settled() {
		c.life = lifeAborting
		c.sendAbort()
		return
	}
	c.creditIfDue()
}

// sendAbort tells the peer. Without a credit the end of the connection says the same.
func (c *core) sendAbort() {
	if c.win.credits > 0 && c.slotFree() {
		c.post(kindAbort, 0, c.abortCode, 0, nil, true)
	}
	c.shut()
	c.life = lifeDone
}

// sendLetter writes and sends a letter, if it can leave now, and reports that it is settled.
func (c *core) sendLetter(l letter) bool {
	switch l {
	case letterGrow, letterShrink:
		return c.sendResize(l == letterShrink)
	case letterUseUp:
		return c.sendUseUp()
	}
	if !c.canControl() {
		return l == letterBlocked && c.win.data()
	}
	switch l {
	case letterDrain:
		c.post(kindNop, flagDrain, 0, 0, nil, true)
	case letterClosed:
		c.post(kindClosed, 0, 0, 0, nil, true)
	case letterPong:
		c.post(kindPong, 0, c.pong, 0, nil, false)
	case letterTarget, letterUntarget, letterDone:
		c.sendInbound(l)
	case letterWrote, letterRevoke:
		return c.sendOutbound(l)
	case letterBlocked:
		return c.sendBlocked()
	case letterFin, letterClose:
		return c.sendEnd(l)
	case letterGoOn:
		c.post(kindGoOn, 0, c.goOn, 0, nil, true)
		c.goOn = 0
	case letterTaken:
		c.post(kindTaken, 0, c.urg.taken, 0, nil, true)
	case letterSuspend:
		return c.sendSuspend()
	}
	return true
}

// sendResize announces a new receive region.
func (c *core) sendResize(drain bool) bool {
	if !c.canCredit() {
		return false
	}
	var flags uint8
	if drain {
		flags = flagDrain
	}
	c.postResize(flags)
	return true
}

// sendUseUp uses up the peer's older receive buffers.
func (c *core) sendUseUp() bool {
	for c.win.old() > 0 && c.canControl() {
		c.post(kindNop, 0, 0, 0, nil, c.win.old() == 1) // the last one is waited for
	}
	return c.win.old() == 0
}

// sendEnd ends the stream, or the connection. Either waits for the large write under way, and for a hand-over.
func (c *core) sendEnd(l letter) bool {
	if c.out.active || c.line.state != lineUp {
		return false
	}
	c.writing = writeEnded
	if l == letterFin {
		c.post(kindFin, 0, 0, 0, nil, true)
		return true
	}
	c.life = max(c.life, lifeCloseSent)
	c.post(kindClose, 0, 0, 0, nil, true)
	return true
}

// blocked reports that a Write waits for credits, and the peer has not been told.
func (c *core) blocked() bool {
	return !c.win.data() && !c.win.told && !c.wanted(letterBlocked) && c.line.state <= linePaused
}

// block tells the peer that a Write waits for credits.
func (c *core) block() {
	if c.blocked() {
		c.fast = false
		c.want(letterBlocked)
	}
}

// sendBlocked tells the peer that a Write waits, unless it does not wait any more.
func (c *core) sendBlocked() bool {
	if !c.win.data() {
		c.win.told = true
		c.post(kindNop, flagBlocked|flagMore, 0, 0, nil, true)
	}
	return true
}

// ping asks the peer for a sign of life.
func (c *core) ping() {
	if c.canControl() {
		c.post(kindPing, 0, c.sent, 0, nil, true)
	}
}

// lateError is the error of an operation beside the stream on a connection that has ended.
func (c *core) lateError() error {
	switch {
	case c.writing != writeOpen:
		return syscall.EPIPE
	case c.err != nil:
		return c.err
	case c.writeOver():
		return syscall.EPIPE
	}
	return nil
}
