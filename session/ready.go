package session

import "net"

// Ready tells what a Read would do now, and takes nothing: it has data to return, or fails with
// err, which is io.EOF at the end, or waits. An error of the connection is not told by this, so
// that a Read still is.
func (c *Conn) Ready() (data bool, err error) {
	c.lock()
	defer c.unlock()
	if c.closed.Load() {
		return false, net.ErrClosed
	}
	if !c.epClosed {
		c.core.poll()
	}
	return c.core.ready()
}

// ready is Ready of the core.
func (c *core) ready() (data bool, err error) {
	if c.queued > 0 || c.in.active && c.reading != readShut {
		return true, nil
	}
	told := c.errTold
	err = c.readEnd(c.line.state == lineEnded)
	c.errTold = told
	return false, err
}
