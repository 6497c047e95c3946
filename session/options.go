package session

import (
	"net"
	"time"
)

// SetDeadline sets the read and the write deadline.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline sets when Reads, also one that waits, fail with os.ErrDeadlineExceeded. Zero: never.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.rd, t) }

// SetWriteDeadline sets when Writes, also one that waits, fail with os.ErrDeadlineExceeded. Zero: never.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.wr, t) }

// TakeDeadlines gives c, which nobody uses yet, the deadlines of old.
func (c *Conn) TakeDeadlines(old *Conn) {
	c.rd.deadline.at.Store(old.rd.deadline.at.Load())
	c.wr.deadline.at.Store(old.wr.deadline.at.Load())
}

func (c *Conn) setDeadline(s *side, t time.Time) error {
	if c.closed.Load() {
		return net.ErrClosed
	}
	s.deadline.set(t)
	s.wake() // it looks at the deadline anew
	return nil
}

// minReadBuffer is the smallest receive buffer.
const minReadBuffer = 4 << 10

// SetReadBuffer bounds the bytes that are kept while nobody reads, beyond the posted receive buffers. As with a
// socket, what is too small is taken for the smallest size.
func (c *Conn) SetReadBuffer(n int) error {
	c.lock()
	defer c.unlock()
	if c.closed.Load() {
		return net.ErrClosed
	}
	c.core.readBuffer, c.core.full = max(n, minReadBuffer), false
	return nil
}

// SetWriteBuffer does nothing: a session keeps no written data.
func (c *Conn) SetWriteBuffer(n int) error {
	if c.closed.Load() {
		return net.ErrClosed
	}
	return nil
}

// SetLinger sets what Close does while written data is not delivered: sec < 0 (the default) delivers it in
// the background, 0 drops the connection, so that the peer sees ECONNRESET, and with a positive sec Close waits that
// many seconds at most for what is delivered in the background, as on Linux.
func (c *Conn) SetLinger(sec int) error {
	c.lock()
	defer c.unlock()
	if c.closed.Load() {
		return net.ErrClosed
	}
	c.linger = max(sec, -1)
	return nil
}
