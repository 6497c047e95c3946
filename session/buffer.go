package session

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync/atomic"

	pool "github.com/libp2p/go-buffer-pool"

	"sansock/provider"
)

// Buffer is memory for data on its way: made by NewBuffer, registered with the provider already, and sent by WriteBuffer
// without a copy on this side; or filled with what has arrived, and handed out by ReadBuffer without a copy.
//
// A Buffer has one owner. Its methods may be called by one goroutine at a time. After Release, and after it was
// given to WriteBuffer, its memory belongs to somebody else: using it is a bug of the program, which panics.
type Buffer struct {
	c      *Conn
	ep     provider.Endpoint // whose memory it is
	data   []byte
	region provider.Region // of NewBuffer: headerSize bytes of head room, then data
	it     item            // of ReadBuffer
	gone   atomic.Bool
}

// Bytes is the content. It panics after Release.
func (b *Buffer) Bytes() []byte {
	if b.gone.Load() {
		panic("sansock: Buffer used after release")
	}
	return b.data
}

// Release gives the memory back. It panics when that has been done before.
func (b *Buffer) Release() {
	if !b.gone.CompareAndSwap(false, true) {
		panic("sansock: Buffer released twice")
	}
	b.release()
}

func (b *Buffer) release() {
	c := b.c
	c.lock()
	defer c.unlock()
	if b.region.Handle != 0 {
		b.ep.Deregister(b.region.Handle)
	} else {
		c.returned(b.ep, b.it)
	}
	b.data, b.region, b.it = nil, provider.Region{}, item{gen: -1}
}

// returned takes back a piece of ep's, which may be an endpoint from before a hand-over. It needs mu.
func (c *Conn) returned(ep provider.Endpoint, it item) {
	if ep == c.ep || it.gen < 0 {
		c.core.returned(it)
	} else {
		c.move.returned(ep, it)
	}
}

// NewBuffer returns a Buffer of n bytes that WriteBuffer sends without a copy on this side. Where the provider has no
// registered memory left, it is ordinary memory, and is copied.
func (c *Conn) NewBuffer(n int) (*Buffer, error) {
	if c.closed.Load() {
		return nil, net.ErrClosed
	}
	c.lock()
	ep := c.ep
	c.unlock()
	b := &Buffer{c: c, ep: ep, it: item{gen: -1}}
	if r, err := ep.Allocate(headerSize + n); err == nil {
		b.region, b.data = r, r.Bytes[headerSize:headerSize+n:headerSize+n]
	} else {
		c.lock()
		c.core.stats.Fallbacks.Buffer++
		c.unlock()
		b.it.own = pool.Get(n)
		b.data = slices.Clip(b.it.own) // what is beyond it in the pool's memory is nobody's to send
		clear(b.data)
	}
	return b, nil
}

// WriteBuffer writes the first n bytes of b and releases it, whatever the outcome. Otherwise it is like Write. It
// panics where b has less than n bytes.
func (c *Conn) WriteBuffer(b *Buffer, n int) (int, error) {
	if !b.gone.CompareAndSwap(false, true) {
		panic("sansock: Buffer used after release")
	}
	defer b.release()
	p := b.data[:n]
	c.lock()
	defer c.unlock()
	c.wr.callLock.lock(&c.mu)
	defer c.wr.callLock.unlock()
	c.core.fast = false
	if err := c.start(&c.wr); err != nil {
		return 0, err
	}
	if b.ep == c.ep && b.region.Handle != 0 {
		c.core.pump() // letters leave before data
		c.core.out.buffer = b.region.Handle
		defer func() { c.core.out.buffer = 0 }()
		if c.core.sendBuffer(b.region, n) {
			c.sleepUntil(&c.wr.waiter, nil, func() bool { return c.core.buffer != bufferOut })
			c.core.buffer = bufferNone
			return n, nil
		}
	}
	m, err := c.write(p)
	return m, c.closing(err)
}

// ReadBuffer returns the next bytes of the stream, as many as arrived in one piece, without copying them. It is like Read
// otherwise. The memory is the connection's: the peer can send less while a program keeps it, so that it should be
// released soon. It may be released after Close.
func (c *Conn) ReadBuffer() (*Buffer, error) {
	c.lock()
	defer c.unlock()
	it, err := c.piece()
	if err != nil {
		return nil, err
	}
	// Clipped, as an append would write into what is still to be read.
	return &Buffer{c: c, ep: c.ep, data: slices.Clip(it.data), it: it}, nil
}

// piece takes the next piece of the stream, waiting for it. It needs mu.
func (c *Conn) piece() (item, error) {
	c.rd.callLock.lock(&c.mu)
	defer c.rd.callLock.unlock()
	err := c.start(&c.rd)
	for err == nil {
		if c.closed.Load() {
			return item{}, net.ErrClosed
		}
		var it item
		var ok bool
		if it, ok, err = c.core.lend(); ok {
			return it, nil
		} else if err != nil {
			break
		}
		if op, begun := c.core.pullPiece(lendPiece); begun {
			c.postRead(op)
			continue
		}
		err = c.sleep(&c.rd)
	}
	return item{}, err
}

// WriteTo writes all that is read until io.EOF to w, from where it arrived, and returns the number of bytes that w
// took. What w did not take of a piece is lost, as with io.Copy. An error of reading comes as a *ReadError, one of w as
// it is.
func (c *Conn) WriteTo(w io.Writer) (int64, error) {
	var total int64
	for {
		c.lock()
		it, err := c.piece()
		ep := c.ep
		c.unlock()
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, &ReadError{err}
		}
		n, err := w.Write(it.data)
		if n < 0 || n > len(it.data) {
			n = 0
			if err == nil {
				err = errInvalidWrite
			}
		}
		if err == nil && n < len(it.data) {
			err = io.ErrShortWrite
		}
		total += int64(n)
		c.lock()
		c.returned(ep, it)
		c.unlock()
		if err != nil {
			return total, err
		}
	}
}

// ReadError is an error of the connection that WriteTo reads from.
type ReadError struct{ Err error }

func (e *ReadError) Error() string { return e.Err.Error() }

// Unwrap returns the error that Read would have returned.
func (e *ReadError) Unwrap() error { return e.Err }

var errInvalidWrite = errors.New("session: invalid write result")

// lendPiece is the largest piece of a large write that is fetched for one Buffer.
const lendPiece = 1 << 20
