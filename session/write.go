package session

import (
	"net"
	"syscall"

	"sansock/provider"
)

// Write writes p. It returns when all of it lies where the peer can read it, whatever this end does next, so that p may
// be used again; or fails with the number of bytes that the peer can ever read.
func (c *Conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	if c.core.fast && !c.wr.taken && !c.wr.deadline.expired() && c.writeFast(p) {
		c.unlockFast()
		return len(p), nil
	}
	c.wr.callLock.lock(&c.mu)
	c.core.fast = false
	n, err := 0, c.start(&c.wr)
	if err == nil {
		n, err = c.write(p)
	}
	c.wr.callLock.unlock()
	err = c.closing(err)
	c.unlock()
	return n, err
}

// writeFast is write for a small p on the fast path; false: it is not that simple. It needs mu.
func (c *Conn) writeFast(p []byte) bool {
	if !c.tuner.timesCopy(len(p)) {
		return c.core.writeFast(p)
	}
	start := monotonic()
	if !c.core.writeFast(p) {
		return false
	}
	c.tuner.copied(len(p), monotonic()-start)
	return true
}

// write needs mu.
func (c *Conn) write(p []byte) (int, error) {
	if len(p) == 0 && !c.closed.Load() {
		return 0, c.core.writeNothing()
	}
	n, rdma := 0, true
	for n < len(p) {
		if c.closed.Load() {
			return n, net.ErrClosed
		}
		c.core.pump() // letters leave before data
		switch use := rdma && c.core.useRDMA(len(p)-n); {
		case use && c.core.canData():
			first, begun := c.core.offer(p[n:])
			if begun {
				m, err := c.offered()
				n += first + m
				if err != nil {
					return n, err
				}
			}
			rdma = false // where the peer cannot take it all, copy the rest
			continue
		case !use:
			m, err := c.copyOut(p[n:])
			n += m
			if err != nil || n == len(p) {
				return n, err
			}
		}
		c.block()
		if err := c.sleep(&c.wr); err != nil {
			return n, err
		}
	}
	return n, nil
}

// copyOut sends what can be sent of p in messages.
func (c *Conn) copyOut(p []byte) (int, error) {
	if !c.tuner.timesCopy(len(p)) {
		return c.core.write(p)
	}
	start := monotonic()
	n, err := c.core.write(p)
	if n == len(p) {
		c.tuner.copied(n, monotonic()-start)
	}
	return n, err
}

// offered waits until the peer is done with an offer, making the RDMA writes that it asks for, and returns how many bytes
// the peer has. It needs mu.
func (c *Conn) offered() (int, error) {
	var err error
	var start int64
	timed := c.tuner.timesMove(len(c.core.out.p))
	if timed {
		start = monotonic()
	}
	for err == nil && !c.core.outboundOver() {
		if op, begun := c.core.push(); begun {
			c.postWrite(op)
		} else if c.epClosed {
			c.core.dropOutbound()
		} else if err = c.sleep(&c.wr); err == nil && c.core.writing != writeOpen && !c.core.outboundOver() {
			if err = syscall.EPIPE; c.closed.Load() { // CloseWrite, or Close
				err = net.ErrClosed
			}
		}
	}
	if err != nil {
		c.core.revokeOutbound()
		c.revoke(&c.wr.waiter, c.core.outboundOver)
	}
	total := len(c.core.out.p)
	n := c.core.takeOutbound()
	if n < total {
		if err == nil && c.core.writeOver() {
			err = c.core.writeEnd()
		}
		return n, err
	}
	if timed && c.core.out.direct {
		c.tuner.moved(n, monotonic()-start)
		if t := c.tuner.threshold(); t != 0 {
			c.core.threshold = t
		}
	}
	return n, nil // also where it was complete before the deadline could take it back
}

// postWrite posts an RDMA write of the core, without mu, as it may copy in place. It needs mu.
func (c *Conn) postWrite(op provider.RDMA) {
	c.mu.Unlock()
	err := c.ep.PostWrite(op)
	c.lock()
	c.core.pushPosted(err)
	c.core.poll()
	c.signal()
}
