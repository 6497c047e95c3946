package session

import (
	"net"
	"syscall"
	"time"
)

// closeTimeout is how long a closed connection, of which the peer has not taken everything yet, may be without a sign of
// life from the peer before it is dropped.
const closeTimeout = 60 * time.Second

// sendTimeout bounds the wait for the last message to leave.
const sendTimeout = time.Second

// Close closes the connection. Reads and Writes return net.ErrClosed. Data written is still delivered in the background,
// unless received data was unread: then the peer reads what it has, and sees ECONNRESET, as with TCP. See SetLinger.
func (c *Conn) Close() error {
	c.lock()
	if c.closed.Load() {
		c.unlock()
		return net.ErrClosed
	}
	c.closed.Store(true)
	c.rd.deadline.stop()
	c.wr.deadline.stop()
	c.rd.wake()
	c.wr.wake()
	if c.epClosed {
		c.core.finish()
		c.unlock()
		return nil
	}
	if c.linger == 0 {
		c.core.drop()
	} else {
		c.core.close()
	}
	c.timers.close()
	c.finalize()
	var over chan struct{}
	if !c.epClosed {
		if c.linger > 0 {
			over = make(chan struct{})
			c.over = over
		}
		c.startLinger(closeTimeout / 2)
	}
	linger := time.Duration(c.linger) * time.Second
	c.unlock()
	if over != nil {
		select {
		case <-over:
		case <-time.After(linger):
		}
	}
	return nil
}

// CloseRead ends reading: once what has arrived is read, Read returns io.EOF. The peer is not told, and what it still
// writes is dropped, as with TCP.
func (c *Conn) CloseRead() error {
	c.lock()
	defer c.unlock()
	if err := c.shutdown(); err != nil {
		return err
	}
	c.core.closeRead()
	c.rd.wake() // a Read into which the peer writes
	return nil
}

// CloseWrite ends writing: the peer reads io.EOF after all that was written.
func (c *Conn) CloseWrite() error {
	c.lock()
	defer c.unlock()
	if err := c.shutdown(); err != nil {
		return err
	}
	c.core.closeWrite()
	c.wr.wake()
	return nil
}

// shutdown is the error of a half-close. It needs mu.
func (c *Conn) shutdown() error {
	if c.closed.Load() {
		return net.ErrClosed
	}
	if c.core.poll(); c.core.stream.over(c.core.line.state == lineEnded) {
		return syscall.ENOTCONN
	}
	return nil
}

// finalize sends what is due, and closes the endpoint when the core is done with it. It needs mu.
func (c *Conn) finalize() {
	if !c.core.fast {
		c.core.pump()
	}
	if !c.core.finished() || c.epClosed {
		return
	}
	if c.core.inFlight > 0 && c.core.line.state != lineEnded {
		c.startLinger(sendTimeout) // the last message is still leaving
		return
	}
	c.closeEndpoint()
}

// closeEndpoint ends the provider's connection. What was received stays readable. It needs mu.
func (c *Conn) closeEndpoint() {
	if c.epClosed {
		return
	}
	c.core.pump() // the last word, if there is one
	c.epClosed = true
	c.ep.Close()
	c.move.stop()
	c.core.lineClosed()
	if c.core.reading != readEOF && !c.closed.Load() {
		c.core.broken(syscall.ECONNRESET)
	}
	c.timers.stop()
	if c.closed.Load() {
		c.core.finish()
	}
	if c.over != nil {
		close(c.over)
		c.over = nil
	}
	c.rd.wake()
	c.wr.wake()
}
