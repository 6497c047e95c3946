package main

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// ringSize is the size of the buffer in each direction of a buffered connection.
const ringSize = 64 << 10

// newBuffered returns the two ends of a connection in memory that is net.Pipe with a buffer, and no more: what is the
// least that a connection within a process costs. Other than net.Pipe, which has a rendezvous for every Write, it lets
// the writer go on.
func newBuffered() (net.Conn, net.Conn) {
	a, b := newRing(), newRing()
	return &bufferedConn{in: a, out: b}, &bufferedConn{in: b, out: a}
}

// bufferedConn is one end.
type bufferedConn struct {
	in, out *ring
	writing sync.Mutex // held by a Write from start to end, and taken before a ring's: writes do not mix
}

func (c *bufferedConn) Read(p []byte) (int, error) { return c.in.read(p) }

func (c *bufferedConn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.out.write(p)
}

func (c *bufferedConn) Close() error {
	c.in.close(&c.in.readerGone)
	c.out.close(&c.out.writerGone)
	return nil
}

func (c *bufferedConn) LocalAddr() net.Addr  { return localAddr("buffered") }
func (c *bufferedConn) RemoteAddr() net.Addr { return localAddr("buffered") }

func (c *bufferedConn) SetDeadline(t time.Time) error {
	c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

func (c *bufferedConn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.readBy, &c.in.readable, t)
	return nil
}

func (c *bufferedConn) SetWriteDeadline(t time.Time) error {
	c.out.setDeadline(&c.out.writeBy, &c.out.writable, t)
	return nil
}

// ring is one direction.
type ring struct {
	mu         sync.Mutex // guards what follows
	readable   sync.Cond
	writable   sync.Cond // has one waiter at most, as writes are one at a time
	buf        []byte
	start, n   int // the data is the n bytes from start on, and goes on at the beginning
	readerGone bool
	writerGone bool
	readBy     deadline
	writeBy    deadline
}

// deadline is over when a time is, of which the timer tells.
type deadline struct {
	timer *time.Timer
	over  bool
}

func newRing() *ring {
	r := &ring{buf: make([]byte, ringSize)}
	r.readable.L, r.writable.L = &r.mu, &r.mu
	return r
}

func (r *ring) read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		switch {
		case r.readerGone:
			return 0, io.ErrClosedPipe
		case r.readBy.over:
			return 0, os.ErrDeadlineExceeded
		case len(p) == 0:
			return 0, nil
		case r.n > 0:
			return r.take(p), nil
		case r.writerGone:
			return 0, io.EOF
		}
		r.readable.Wait()
	}
}

// take moves data out.
func (r *ring) take(p []byte) int {
	p = p[:min(len(p), r.n)]
	n := copy(p, r.buf[r.start:])
	copy(p[n:], r.buf)
	r.start = (r.start + len(p)) % len(r.buf)
	r.n -= len(p)
	r.writable.Signal()
	if r.n > 0 {
		r.readable.Signal() // for another reader: the writer woke one
	}
	return len(p)
}

func (r *ring) write(p []byte) (done int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		switch {
		case r.writerGone || r.readerGone:
			return done, io.ErrClosedPipe
		case r.writeBy.over:
			return done, os.ErrDeadlineExceeded
		case r.n < len(r.buf):
			done += r.put(p[done:])
		}
		if done == len(p) {
			return done, nil
		}
		r.writable.Wait()
	}
}

// put moves data in.
func (r *ring) put(p []byte) int {
	p = p[:min(len(p), len(r.buf)-r.n)]
	end := (r.start + r.n) % len(r.buf)
	n := copy(r.buf[end:], p)
	copy(r.buf, p[n:])
	r.n += len(p)
	r.readable.Signal()
	return len(p)
}

// close sets one of the ring's marks that a side is gone.
func (r *ring) close(gone *bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*gone = true
	for _, d := range []*deadline{&r.readBy, &r.writeBy} {
		if r.readerGone && r.writerGone && d.timer != nil {
			d.timer.Stop()
		}
	}
	r.readable.Broadcast()
	r.writable.Broadcast()
}

func (r *ring) setDeadline(d *deadline, waiting *sync.Cond, t time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	left := time.Until(t)
	d.over = !t.IsZero() && left <= 0
	if d.over {
		waiting.Broadcast()
	}
	if t.IsZero() || d.over {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(left, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if d.timer == timer { // and not one that was set while this one waited for the mutex
			d.over = true
			waiting.Broadcast()
		}
	})
	d.timer = timer
}
