package session

import (
	"encoding/binary"
	"syscall"

	pool "github.com/libp2p/go-buffer-pool"

	"sansock/provider"
)

// core is the protocol of one end of a session as a state machine. It has no goroutines, clocks or locks: whoever
// drives it calls poll when completions may have arrived, and the operations of the application, one at a time.
// None of its methods blocks. What stops an operation is visible in readable, writable and finished.
//
// Its state is grouped by lifetime: the stream outlives a hand-over, a line ends with its endpoint, in and out with one
// large write.
type core struct {
	stream
	line
	outbox // what is to be sent over the line

	in  inbound
	out outbound

	life      life
	abortCode uint64

	urg      *urgent     // nil until there is something urgent
	susp     *suspension // the last hand-over; nil: none
	suspends uint64      // number of the last one of this end
	goOn     uint64      // number of one that was called off: the argument of letterGoOn
	dialer   bool        // this end gives way where both begin one
	pong     uint64      // the argument of letterPong

	threshold int // size from which a write is offered; 0: never
	stats     Stats
}

// life is what becomes of the connection, as far as this end decides it. It only goes down the list.
type life uint8

const (
	lifeOpen      life = iota
	lifeClosing        // Close: what was written is delivered, and then kindClose
	lifeCloseSent      // kindClosed is waited for
	lifeSettling       // to be dropped when the large writes have ended: both ends then know what was read
	lifeAborting       // kindAbort is to be sent
	lifeDone           // nothing is left to do: the endpoint may be closed
)

// Abort codes.
const (
	abortReset    = 1 // the application dropped the connection, or closed it with unread data
	abortProtocol = 2 // the peer broke the protocol
	abortTimeout  = 3 // the peer did not answer in time
	abortFailed   = 4 // an operation of the provider failed
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
	if total > 0 && !c.fast {
		c.pump()
	}
	return total
}

func (c *core) complete(p *provider.Completion) {
	if c.fast && p.Status == provider.StatusOK && c.completeFast(p) {
		return
	}
	c.fast = false
	switch p.Op {
	case provider.OpRecv:
		gen, slot := splitContext(p.Context)
		c.recv[gen].posted--
		switch {
		case p.Status == provider.StatusOK && c.err == nil:
			c.receive(gen, slot, p.Len)
		case !ending(p.Status) && p.Status != provider.StatusOK:
			c.fail(p.Status, abortFailed)
		}
	case provider.OpSend:
		c.sendDone(p.Context)
		if p.Status != provider.StatusOK && p.Status != provider.StatusAborted {
			c.disconnected(p.Status)
		}
	case provider.OpRead:
		c.pulled(p.Status)
	case provider.OpWrite:
		c.pushed(p.Status)
	case provider.OpDisconnect:
		c.disconnected(p.Status)
	}
}

// ending reports that an operation has failed with the connection, and not by itself.
func ending(s provider.Status) bool {
	switch s {
	case provider.StatusAborted, provider.StatusDisconnected, provider.StatusExited, provider.StatusExitedUnread:
		return true
	}
	return false
}

// completeFast is complete on the fast path. It reports false, and has done nothing, where p is something else than
// bytes of the stream, or credits.
func (c *core) completeFast(p *provider.Completion) bool {
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
		case h&0xffff == uint64(kindData)|flagOpen<<8 && p.Len > headerSize && h>>32 <= uint64(p.Len-headerSize):
		case h>>32 != uint64(p.Len-headerSize):
			return false
		case h&0xffff == uint64(kindData) && p.Len > headerSize:
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
		c.received++
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
		c.sendDone(p.Context)
		return true
	}
	return false
}

// canFast reports that the next message of the stream, in either direction, needs nothing but to be sent, or taken.
func (c *core) canFast() bool {
	return c.due == 0 && !c.in.active && !c.in.busy && !c.out.active && c.line.plain() &&
		c.reading == readOpen && c.writing == writeOpen && c.peer == peerThere && c.err == nil &&
		c.life == lifeOpen && (c.susp == nil || c.susp.over())
}

// plain reports that the line has nothing to look after.
func (l *line) plain() bool {
	return l.state == lineUp && l.fault == nil && l.late == nil && l.send.want == 0 && l.buffer == bufferNone &&
		!l.peerBlocked && !l.shrinking
}

// pending reports that something waits to leave, or an RDMA read of nobody's is under way: what they wait for need not
// be solicited.
func (c *core) pending() bool {
	return c.due != 0 || c.late != nil || c.in.busy && c.in.read || c.send.want != 0 || c.life == lifeSettling
}

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
		c.life = lifeDone // there is nobody to tell
	}
	c.pump()
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
	c.pump()
}

// settled reports that no large write is under way.
func (c *core) settled() bool {
	return (!c.out.active || c.outboundOver()) && !c.in.busy && !c.wanted(letterWrote) && !c.wanted(letterDone)
}

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
		c.pump()
	}
}

// closeWrite ends the stream to the peer after what was written.
func (c *core) closeWrite() {
	if c.writing == writeOpen {
		c.writing, c.fast = writeEnding, false
		c.want(letterFin)
		c.pump()
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
		c.pump()
	}
	if c.urg != nil && c.reading == readShut {
		c.urg.taken = c.urg.arrived // the peer can go on: what it sends from now on is dropped
		c.want(letterTaken)
		c.pump()
	}
}

// finished reports that the endpoint may be closed. A fault of the provider's ends everything.
func (c *core) finished() bool {
	c.noteFault()
	return c.life == lifeDone
}

// noteFault acts on a failure of the provider's.
func (c *core) noteFault() {
	if c.fault != nil && c.life != lifeDone {
		c.fast = false
		c.broken(c.fault)
		c.life = lifeDone
	}
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

// putCount encodes a count as the payload behind the scratch header.
func (c *core) putCount(n uint64) { binary.LittleEndian.PutUint64(c.scratch[headerSize:], n) }
