package session

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
)

// An urgent message overtakes the stream: it needs no more than a control message's credit, so that it leaves while
// data is stalled, and the receiver keeps it beside the stream. It carries a mark, the place in the stream where it
// was written. The receiver keeps urgentWindow messages of maxUrgent bytes at most and says kindTaken when the
// application has taken some, so nothing is lost, and nobody can make it keep more.
const (
	urgentWindow = 16
	maxUrgent    = minBuffer - headerSize // fits into every receive buffer
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

// urgent is what a core has of urgent messages.
type urgent struct {
	queue       ring[urgentItem] // received, not taken by the application
	arrived     uint64           // since the beginning
	taken       uint64           // of these, those the application is done with
	takenWanted bool             // to be told
	mark        uint64           // the last one received
	sent, acked uint64           // own ones, and those of them the peer's application is done with

	readers, writers gate
}

type urgentItem struct {
	data []byte
	mark uint64
}

// pending reports that something waits to leave.
func (u *urgent) pending() bool { return u.takenWanted || u.writers.n > 0 }

func (c *core) urgent() *urgent {
	if c.urg == nil {
		c.urg = new(urgent)
	}
	return c.urg
}

// sentPosition is how much of the stream was written, as far as that can still reach the peer. An offer that
// is under way counts when it is over.
func (c *core) sentPosition() uint64 {
	return c.stats.BytesCopiedOut + c.stats.BytesRDMAOut + uint64(len(c.held))
}

// readPosition is how much of the stream the application has read.
func (c *core) readPosition() uint64 {
	return c.stats.BytesCopiedIn + c.stats.BytesRDMAIn - uint64(c.queued)
}

// canUrgent reports that an urgent message of n bytes may leave now.
func (c *core) canUrgent(n int) bool {
	return !c.paused && c.canControl() && c.roomFor(n) &&
		(c.urg == nil || c.urg.sent-c.urg.acked < urgentWindow)
}

// roomFor reports that a control message with a payload of n bytes has memory to leave from.
func (c *core) roomFor(n int) bool { return headerSize+n <= c.attr.MaxInline || len(c.send.free) > 0 }

// sendUrgent sends p, which canUrgent has allowed.
func (c *core) sendUrgent(p []byte) {
	c.urgent().sent++
	c.stats.UrgentSent++
	c.post(kindUrgent, 0, c.sentPosition(), 0, p, true)
}

// urgentArrived takes an urgent message of the peer's.
func (c *core) urgentArrived(mark uint64, p []byte) error {
	if c.features&featureUrgent == 0 {
		return protocolError("urgent message without agreement")
	}
	u := c.urgent()
	switch {
	case len(p) == 0 || len(p) > maxUrgent:
		return protocolError("urgent message of %d bytes", len(p))
	case u.arrived-u.taken >= urgentWindow:
		return protocolError("more than %d urgent messages", urgentWindow)
	case mark < u.mark || mark > maxMark:
		return protocolError("urgent mark %d after %d", mark, u.mark)
	case c.eof:
		return protocolError("urgent message after the end")
	case c.closing || c.aborting:
		c.abort(abortReset) // as for data: the peer has to know that it is lost
		return nil
	}
	u.arrived++
	u.mark = mark
	c.stats.UrgentReceived++
	if c.deaf {
		u.taken, u.takenWanted = u.taken+1, true
		c.note()
		return nil
	}
	u.queue.push(urgentItem{append([]byte(nil), p...), mark})
	return nil
}

// maxMark bounds marks, so that the difference of two positions is an int64.
const maxMark = 1 << 62

// urgentTaken acts on the peer's word that its application is done with n urgent messages.
func (c *core) urgentTaken(n uint64) error {
	if c.urg == nil || n < c.urg.acked || n > c.urg.sent {
		return protocolError("%d urgent messages taken", n)
	}
	c.urg.acked = n
	return nil
}

// takeUrgent returns the oldest urgent message. If there is none it is not ok, and err tells if there will be none.
func (c *core) takeUrgent() (m Urgent, ok bool, err error) {
	if u := c.urg; u != nil && u.queue.len() > 0 {
		it := u.queue.pop()
		if !c.deaf { // else they are taken, for the peer, already
			u.taken, u.takenWanted = u.taken+1, true
			c.note()
			c.pump()
		}
		return Urgent{it.data, int64(it.mark - c.readPosition())}, true, nil
	}
	switch {
	case c.eof, c.deaf:
		return m, false, io.EOF
	case c.err != nil:
		return m, false, c.err
	case c.ended:
		return m, false, io.EOF
	}
	return m, false, nil
}

// deafUrgent lets the peer go on: what it sends from now on is dropped.
func (c *core) deafUrgent() {
	c.urg.taken, c.urg.takenWanted = c.urg.arrived, true
	c.note()
	c.pump()
}

func (c *core) pumpUrgent() {
	if c.urg.takenWanted && c.canControl() {
		c.urg.takenWanted = false
		c.post(kindTaken, 0, c.urg.taken, 0, nil, true)
	}
}

// ErrNoUrgent is the error of urgent data on a connection to a peer that does not know it. It is errors.ErrUnsupported.
var ErrNoUrgent error = unsupported("session: the peer does not take urgent data")

// unsupported is an error that is errors.ErrUnsupported.
type unsupported string

func (e unsupported) Error() string        { return string(e) }
func (e unsupported) Is(target error) bool { return target == errors.ErrUnsupported }

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
		if !c.core.canUrgent(len(p)) {
			c.core.poll()
		}
		switch {
		case c.core.finWanted:
			return syscall.EPIPE
		case c.core.err != nil:
			return c.core.err
		case c.core.writeOver():
			return syscall.EPIPE
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case len(p) == 0:
			return nil
		case c.core.canUrgent(len(p)):
			c.core.sendUrgent(p)
			return nil
		}
		c.await(ctx, &c.core.urgent().writers)
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
		c.await(ctx, &c.core.urgent().readers)
	}
}

// signalUrgent wakes those who wait for something urgent and can go on. It needs mu.
func (c *Conn) signalUrgent() {
	u := c.core.urg
	over := c.closed.Load() || c.core.err != nil || c.core.ended
	if u.readers.n > 0 && (over || u.queue.len() > 0 || c.core.eof || c.core.deaf) {
		u.readers.wake()
	}
	if u.writers.n > 0 && (over || c.core.writeOver() || c.core.canUrgent(maxUrgent)) {
		u.writers.wake()
	}
}
