//go:build unix

package main

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// conn is a connection of an http.Server that can be handed over between two requests: when the last one is answered, and nothing
// of the next has been read. Then all that the server knows about it is that it waits for a request, and what the client
// sends meanwhile waits in the connection, and goes with it.
//
// It relies on clients that send a request when the one before has been answered, as those of HTTP/1.1 do. A connection of
// another that pipelines requests moves only if it happens to be between two.
type conn struct {
	net.Conn
	s *server

	mu       sync.Mutex
	changed  *sync.Cond
	reads    int       // under way
	between  bool      // between two requests
	clean    bool      // nothing has been read since the last write
	moving   bool      // Reads wait until it is clear whether it moves
	moved    bool      // it is somebody else's
	deadline time.Time // of reading, as the server wants it
}

func newConn(c net.Conn, s *server) *conn {
	mc := &conn{Conn: c, s: s, between: true, clean: true}
	mc.changed = sync.NewCond(&mc.mu)
	return mc
}

// Read reads, and waits while the connection may move.
func (c *conn) Read(p []byte) (int, error) {
	for {
		c.mu.Lock()
		for c.moving {
			c.changed.Wait()
		}
		if c.moved {
			c.mu.Unlock()
			return 0, net.ErrClosed
		}
		c.reads++
		c.mu.Unlock()

		n, err := c.Conn.Read(p)

		c.mu.Lock()
		c.reads--
		if n > 0 {
			c.between, c.clean = false, false
		}
		interrupted := n == 0 && c.moving && errors.Is(err, os.ErrDeadlineExceeded)
		c.changed.Broadcast()
		c.mu.Unlock()
		if !interrupted {
			return n, err
		}
	}
}

// Write writes a part of an answer: what is read later is of the next request.
func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.clean = true
	c.mu.Unlock()
	return c.Conn.Write(p)
}

// answered notes that the server waits for the next request. It may have read some of it already.
func (c *conn) answered() {
	c.mu.Lock()
	c.between = c.clean
	c.mu.Unlock()
	c.s.mu.Lock()
	pass := c.s.pass
	c.s.mu.Unlock()
	if pass != nil {
		go c.move(pass)
	}
}

// SetReadDeadline sets the deadline, unless move has set its own meanwhile.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	if c.moving {
		return nil
	}
	return c.Conn.SetReadDeadline(t)
}

// SetDeadline sets both deadlines.
func (c *conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.Conn.SetWriteDeadline(t)
}

// move hands the connection over, if it is between two requests. Otherwise the server goes on with it, and answered tries again.
func (c *conn) move(pass func(net.Conn) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.between || c.moving || c.moved {
		return
	}
	c.moving = true
	c.Conn.SetReadDeadline(time.Unix(1, 0)) // ends the Read that waits for a request
	for c.reads > 0 {
		c.changed.Wait()
	}
	if c.between { // no request has come in the last moment
		c.mu.Unlock()
		err := pass(c.Conn)
		c.mu.Lock()
		c.moved = err == nil
	}
	c.moving = false
	if !c.moved {
		c.Conn.SetReadDeadline(c.deadline)
	}
	c.changed.Broadcast()
}

// Close closes the connection, unless that is somebody else's now.
func (c *conn) Close() error {
	c.mu.Lock()
	for c.moving {
		c.changed.Wait()
	}
	moved := c.moved
	c.mu.Unlock()
	c.s.remove(c)
	if moved {
		return nil
	}
	return c.Conn.Close()
}
