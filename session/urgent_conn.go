package session

import (
	"context"
	"net"
	"syscall"
)

// MaxUrgent is the size in bytes of the longest urgent message.
const MaxUrgent = maxUrgent

// Urgent is an urgent message that was received.
type Urgent struct {
	// Data is its bytes, 1 to MaxUrgent.
	Data []byte

	// Ahead is the number of bytes of the stream that the peer had written before the urgent message and
	// that have not been read yet: after so many more, reading is at the mark. It is negative if the mark has been
	// passed. Bytes of a Write that was under way may count or not.
	Ahead int64
}

// ErrNoUrgent is the error of urgent data on a connection to a peer that does not know it. It is errors.ErrUnsupported.
var ErrNoUrgent error = unsupported("session: the peer does not take urgent data")

// WriteUrgent sends p, of at most MaxUrgent bytes, as one urgent message: it passes what the peer has not read yet, and
// a Write that waits. It returns when the message has left; p may be used again. It waits while the
// peer's application has not taken the 16 messages before. When ctx ends its cause is returned, and nothing was sent.
// Deadlines are of no concern here.
//
// Errors are those of Write, ErrNoUrgent, and syscall.EMSGSIZE if p is too long.
func (c *Conn) WriteUrgent(ctx context.Context, p []byte) error {
	c.lock()
	defer c.unlock()
	for {
		switch {
		case c.closed.Load():
			return net.ErrClosed
		case c.core.features&featureUrgent == 0:
			return ErrNoUrgent
		case len(p) > maxUrgent:
			return syscall.EMSGSIZE
		}
		c.core.poll() // letters leave before what is written
		if err := c.core.lateError(); err != nil {
			return err
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case len(p) == 0:
			return nil
		case c.core.canUrgent(len(p)):
			c.core.sendUrgent(p)
			return nil
		}
		c.await(ctx, &c.urgent.out)
	}
}

// ReadUrgent returns the next urgent message, waiting for it. It does not wait for Reads, nor they for it. When
// ctx ends its cause is returned; deadlines are of no concern. After the last message of a stream
// that has ended it returns io.EOF. Errors are those of Read, and ErrNoUrgent.
func (c *Conn) ReadUrgent(ctx context.Context) (Urgent, error) {
	c.lock()
	defer c.unlock()
	for {
		switch {
		case c.closed.Load():
			return Urgent{}, net.ErrClosed
		case c.core.features&featureUrgent == 0:
			return Urgent{}, ErrNoUrgent
		}
		c.core.poll()
		if m, ok, err := c.core.takeUrgent(); ok || err != nil {
			return m, err
		}
		if ctx.Err() != nil {
			return Urgent{}, context.Cause(ctx)
		}
		c.await(ctx, &c.urgent.in)
	}
}

// signalUrgent wakes those who wait for something urgent and can go on. It needs mu.
func (c *Conn) signalUrgent() {
	if c.urgent.in.n == 0 && c.urgent.out.n == 0 {
		return
	}
	over := c.closed.Load() || c.core.err != nil || c.core.line.state == lineEnded
	if u := c.core.urg; over || c.core.reading != readOpen || u != nil && u.queue.Len() > 0 {
		c.urgent.in.wake()
	}
	if over || c.core.writeOver() || c.core.canUrgent(maxUrgent) {
		c.urgent.out.wake()
	}
}
