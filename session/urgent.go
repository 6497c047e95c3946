package session

import (
	"io"

	"sansock/internal/ring"
)

// An urgent message overtakes the stream: it needs no more than a control message's credit, so that it leaves while
// data is stalled, and the receiver keeps it beside the stream. It carries a mark, the place in the stream where it
// was written. The receiver keeps urgentWindow messages of maxUrgent bytes at most and says kindTaken when the
// application has taken some. So nothing is lost, and nobody can make it keep more.
const (
	urgentWindow = 16
	maxUrgent    = minBuffer - headerSize // fits into every receive buffer
)

// urgent is what a core has of urgent messages.
type urgent struct {
	queue       ring.Ring[urgentItem] // received, not taken by the application
	arrived     uint64                // since the beginning
	taken       uint64                // of these, those the application is done with
	mark        uint64                // the last one received
	sent, acked uint64                // own ones, and those of them the peer's application is done with
}

type urgentItem struct {
	Data []byte
	Mark uint64
}

// forget drops what was received.
func (u *urgent) forget() { u.queue = ring.Ring[urgentItem]{} }

func (c *core) urgent() *urgent {
	if c.urg == nil {
		c.urg = new(urgent)
	}
	return c.urg
}

// canUrgent reports that an urgent message of n bytes may leave now.
func (c *core) canUrgent(n int) bool {
	return c.line.state == lineUp && c.canControl() && c.roomFor(n) &&
		(c.urg == nil || c.urg.sent-c.urg.acked < urgentWindow)
}

// sendUrgent sends p, which canUrgent has allowed.
func (c *core) sendUrgent(p []byte) {
	c.urgent().sent++
	c.stats.UrgentSent++
	c.post(kindUrgent, 0, c.stream.written, 0, p, true)
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
	case c.reading == readEOF:
		return protocolError("urgent message after the end")
	case c.life >= lifeClosing:
		return errUnwanted
	}
	u.arrived++
	u.mark = mark
	c.stats.UrgentReceived++
	if c.reading == readShut {
		u.taken++
		c.want(letterTaken)
		return nil
	}
	u.queue.Push(urgentItem{append([]byte(nil), p...), mark})
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
	if u := c.urg; u != nil && u.queue.Len() > 0 {
		it := u.queue.Pop()
		if c.reading != readShut { // else they are taken, for the peer, already
			u.taken++
			c.fast = false
			c.want(letterTaken)
		}
		return Urgent{it.Data, int64(it.Mark - c.readPosition())}, true, nil
	}
	switch {
	case c.reading != readOpen:
		return m, false, io.EOF
	case c.err != nil:
		return m, false, c.err
	case c.line.state == lineEnded:
		return m, false, io.EOF
	}
	return m, false, nil
}
