package session

import (
	"syscall"

	pool "github.com/libp2p/go-buffer-pool"

	"sansock/provider"
)

// disconnected notes the end of the provider's connection. What had been received stays readable.
func (c *core) disconnected(s provider.Status) {
	if c.line.state == lineQuiet || c.line.state == lineEnded {
		return // it goes on elsewhere, or does not come in time
	}
	c.line.state = lineEnded
	switch {
	case c.peer != peerThere || c.life >= lifeClosing:
	case s == provider.StatusExited:
		// The end of a process looks as over TCP, whose kernel closes what the process had: as a close.
		c.reading, c.peer = readEOF, peerClosed
	case s == provider.StatusExitedUnread:
		c.aborted(abortReset)
	default:
		c.broken(syscall.ECONNRESET)
	}
	if c.peer == peerThere {
		c.peer = peerClosed
	}
	c.life = lifeDone
}

// aborted notes that the peer dropped the connection.
func (c *core) aborted(code uint64) {
	if c.err == nil && c.life != lifeClosing && c.life != lifeCloseSent {
		switch {
		case code == abortTimeout:
			c.err = syscall.ETIMEDOUT
		case c.reading == readEOF:
			c.peer = peerReset // as TCP: a reset after the peer's FIN only breaks writing, and no write is taken any more
		default:
			c.err = syscall.ECONNRESET
		}
	}
	c.life, c.peer = lifeDone, max(c.peer, peerClosed)
}

// fail breaks the connection for err, and tells the peer.
func (c *core) fail(err error, code uint64) {
	c.broken(err)
	c.abort(code)
}

// abort drops the connection at once: the peer sees ECONNRESET.
func (c *core) abort(code uint64) {
	c.fast = false // also where a Read, or a completion, of the fast path comes here
	if c.life >= lifeAborting {
		return
	}
	c.life, c.abortCode = lifeAborting, code
	if c.line.state >= lineQuiet {
		c.life = lifeDone // there is no way to tell anybody
	}
}

// drop drops the connection as the application wants it: with a reset, but not before the large writes under way have
// ended, so that each end knows exactly how many bytes the other has read.
func (c *core) drop() {
	c.fast = false
	if c.life >= lifeSettling {
		return
	}
	c.life, c.abortCode = lifeSettling, abortReset
	if c.line.state >= lineQuiet {
		c.life = lifeDone
		return
	}
	c.cancel(letterFin)
	c.cancel(letterClose)
	c.revokeOutbound()
	switch {
	case c.in.busy:
		c.stopPiece()
	case c.in.active:
		c.endOffer(c.in.taken)
	}
}

// settled reports that no large write is under way.
func (c *core) settled() bool { return c.ownOver() && !c.in.busy }

// close ends the connection. Unread data makes it a reset, as with TCP; otherwise what was written is still delivered,
// and the core is done when the peer has it.
func (c *core) close() {
	c.poll()
	switch {
	case c.life >= lifeClosing && c.life != lifeDone:
	case c.line.state != lineEnded && c.life != lifeDone && (c.queue.Len() > 0 || c.in.active):
		c.err = nil
		c.drop()
	case c.err != nil || c.line.state == lineEnded || c.peer != peerThere:
		c.life = lifeDone
	default:
		c.life, c.fast = lifeClosing, false
		if c.writing != writeEnded {
			c.writing = writeEnding
		}
		c.cancel(letterFin)
		c.want(letterClose)
	}
}

// closeWrite ends the stream to the peer after what was written.
func (c *core) closeWrite() {
	if c.writing == writeOpen {
		c.writing, c.fast = writeEnding, false
		c.want(letterFin)
	}
}

// closeRead ends reading where the queue does. What arrives later is dropped.
func (c *core) closeRead() {
	c.fast = false
	if c.reading == readOpen {
		c.reading = readShut
	}
	if c.in.active && !c.in.busy {
		c.endOffer(c.in.total)
	}
	if c.urg != nil && c.reading == readShut {
		c.urg.taken = c.urg.arrived // the peer can go on: what it sends from now on is dropped
		c.want(letterTaken)
	}
}

// finished reports that the endpoint may be closed. A fault of the provider's ends everything.
func (c *core) finished() bool {
	c.noteFault()
	return c.life == lifeDone
}

// noteFault acts on a failure of the provider's. The peer is told, if anything can still leave.
func (c *core) noteFault() {
	if c.fault == nil || c.life >= lifeAborting {
		return
	}
	c.fail(c.fault, abortFailed)
}

// lineClosed follows the closing of the endpoint: what had been received stays readable.
func (c *core) lineClosed() {
	c.fast = false
	if c.susp != nil {
		c.susp.state = suspOver
	}
	// From lineQuiet on nobody hears of the end, so that what has arrived is taken in any case.
	c.line.state, c.life, c.due = lineEnded, lifeDone, 0
	c.peer = max(c.peer, peerClosed)
	c.poll()
	c.dropInbound()
	c.dropOutbound()
}

// finish releases what the core holds, once nothing will be read or written. The endpoint is closed before.
func (c *core) finish() {
	for c.queue.Len() > 0 {
		if it := c.queue.Pop(); it.gen < 0 {
			pool.Put(it.own)
		} else {
			c.recv[it.gen].held--
		}
	}
	c.dropInbound()
	c.dropOutbound()
	c.line.close()
	c.queued, c.spilled = 0, 0
	if c.urg != nil {
		c.urg.forget()
	}
	c.broken(syscall.ECONNRESET)
}
