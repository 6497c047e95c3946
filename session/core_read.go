package session

import (
	pool "github.com/libp2p/go-buffer-pool"
)

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

// markUnread has the provider know whether the end of this process is to look like a reset: the application has yet to
// read something, or wants every end to be one.
func (c *core) markUnread(reset bool) {
	if unread := reset || c.queue.Len() > 0 || c.in.active; unread != c.unread && c.appender != nil {
		c.unread = unread
		c.appender.Unread(unread)
	}
}
