package session

import (
	"sansock/provider"
)

// rebound is the core of a session's passive end, c, on another line, where fresh has been negotiated. What c had
// received has been copied from the old line's memory.
func (c *core) rebound(fresh *core) {
	old := *c
	c.line, c.outbox = fresh.line, fresh.outbox
	c.susp, c.fast = fresh.susp, false
	if old.buffer != bufferNone {
		c.buffer = bufferDone
	}
	// Transfers are over, but who waited for them may not have noticed.
	c.in = inbound{id: old.in.id, piece: piece{got: old.in.got, over: old.in.over}}
	c.out = outbound{active: old.out.active, id: old.out.id, p: old.out.p, taken: old.out.taken, over: old.out.over,
		direct: old.out.direct}
	c.cache = old.cache
	c.stats.MessagesReceived += old.received
	c.stats.MessagesSent += old.sent
	c.repeat()
}

// repeat has letters sent again that the old line may have lost, or had not sent.
func (c *core) repeat() {
	if c.urg != nil && c.urg.taken > 0 {
		c.want(letterTaken)
	}
	switch {
	case c.life == lifeClosing:
		c.want(letterClose)
	case c.writing == writeEnding:
		c.want(letterFin)
	}
}

// unbind ends the use of the old endpoint, which is closed: what was received moves to memory of our own. It returns
// the regions of which the application still keeps buffers.
func (c *core) unbind() (kept [2]receives, lent int) {
	for i := range c.queue.Len() {
		it := c.queue.Pop()
		if it.gen < 0 {
			c.queue.Push(it)
			continue
		}
		c.keep(it.data, i > 0)
		c.recv[it.gen].held--
	}
	c.line.close()
	return c.recv, c.lent
}

// oldRegions are receive regions of an endpoint that is closed, of which the application keeps buffers.
type oldRegions struct {
	ep   provider.Endpoint
	recv [2]receives
	lent int
}

// returned takes back a piece, and reports that it was the last one.
func (o *oldRegions) returned(it item) (last bool) {
	o.recv[it.gen].held--
	o.recv[it.gen].release(o.ep)
	o.lent--
	return o.lent == 0
}
