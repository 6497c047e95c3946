package session

import (
	"net"

	"sansock/provider"
)

// Read reads up to len(p) bytes: what has arrived, or, if nothing has, the next bytes that do.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		if c.closed.Load() {
			return 0, net.ErrClosed
		}
		return 0, nil
	}
	c.mu.Lock() // a Read leaves the core on the fast path, if it is
	c.rd.callLock.lock(&c.mu)
	n, err := 0, c.start(&c.rd)
	if err == nil {
		n, err = c.read(p)
	}
	c.rd.callLock.unlock()
	err = c.closing(err)
	c.unlock()
	return n, err
}

// read needs mu.
func (c *Conn) read(p []byte) (int, error) {
	for {
		if c.closed.Load() {
			return 0, net.ErrClosed
		}
		n, err := c.core.read(p)
		if n > 0 || err != nil {
			return n, err
		}
		if c.core.canPull() {
			if op, begun := c.core.pull(p); begun {
				if n := c.readPiece(op); n > 0 {
					return n, nil
				}
				continue
			}
		}
		if err := c.sleep(&c.rd); err != nil {
			return 0, err
		}
	}
}

// readPiece brings a piece of an offer that is under way to its end and returns the bytes that it brought into the
// Read's buffer. As the device may use that until then, neither a deadline nor Close ends the wait at once: in write
// mode the peer is asked to stop; and a piece that does not end in revokeTimeout costs the connection. It needs mu.
func (c *Conn) readPiece(op provider.RDMA) int {
	c.postRead(op)
	for c.core.in.busy && c.core.in.user {
		if c.sleep(&c.rd) != nil || c.core.reading == readShut {
			c.core.stopPiece()
			c.revoke(&c.rd.waiter, func() bool { return !c.core.in.busy })
		}
	}
	return c.core.takePiece()
}

// postRead posts an RDMA read of the core, without mu, as it may copy in place. It needs mu.
func (c *Conn) postRead(op provider.RDMA) {
	if op.Local.Bytes == nil {
		return // write mode: a target has been sent
	}
	c.mu.Unlock()
	err := c.core.reader.PostRead(op)
	c.lock()
	c.core.pullPosted(err)
	c.core.poll()
	c.signal()
}

// background takes in what nobody reads, within the receive buffer, so that the peer's Write returns. It needs mu.
func (c *Conn) background() {
	if c.rd.taken || c.epClosed {
		return
	}
	if c.core.peerBlocked {
		c.core.spill()
	}
	for !c.rd.taken && !c.epClosed {
		op, begun := c.core.pullOwn()
		if !begun {
			break
		}
		c.postRead(op)
		if c.core.in.busy {
			break // its completion wakes us again
		}
	}
}
