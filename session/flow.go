package session

import "time"

// A flow is small writes that follow each other faster than the peer returns credits. They are gathered until there are enough
// for a message that is worth its cost, or the writer does something else. When it stops, tick sends what there is, the second
// one at the latest. So nobody asks the peer for credits, and is woken when they come, while the writer comes by all the time anyway.
const (
	flowTick  = 200 * time.Microsecond
	flowBytes = 16 << 10 // in one tick, or it is no flow
	flowGoal  = 8 << 10  // gathered bytes that are worth a message, if the writes are not larger
	flowCount = 16       // writes, if they are
)

// beginFlow takes notice of a small write that finds few credits left.
func (c *core) beginFlow() {
	if c.ticks && !c.flow && c.small && len(c.held) == 0 && c.win.short() {
		c.flow, c.flown = true, c.written()
	}
}

// written counts the bytes of the stream that were written.
func (c *core) written() uint64 {
	return c.stats.BytesCopiedOut + c.stats.BytesRDMAOut + uint64(len(c.held))
}

// gather takes a small write of a flow, and sends what was gathered if that is enough. It reports false, and has taken nothing,
// where there is no room.
func (c *core) gather(p []byte) bool {
	n := len(c.held) + len(p)
	if !c.small || n > c.gatherLimit() || c.held != nil && n > cap(c.held) {
		return false
	}
	c.hold(p)
	if n >= min(max(flowGoal, flowCount*len(p)), c.gatherLimit()-len(p)) {
		if c.win.short() {
			c.poll()
		}
		c.flushHeld()
	}
	return true
}

// endFlow sends what was gathered, or sees to it that it leaves with the next credits.
func (c *core) endFlow() {
	if c.flow {
		c.flow, c.calm = false, false
		c.pump()
	}
}

// tick is called once in a while, and reports whether the flow goes on.
func (c *core) tick() bool {
	n := c.written()
	if !c.flow || n-c.flown < flowBytes {
		c.endFlow()
		return false
	}
	c.flown = n
	return true
}

// keepFlow has tick called as long as there is a flow: all that leave mu to others after a flow may have begun get here, as a
// Write may leave gathered bytes also where it fails. It needs mu.
func (c *Conn) keepFlow() {
	t := &c.timers
	if !c.core.flow || t.flowSet {
		return
	}
	t.flowSet = true
	if t.flow == nil {
		t.flow = time.AfterFunc(flowTick, c.flowTick)
	} else {
		t.flow.Reset(flowTick)
	}
}

func (c *Conn) flowTick() {
	c.mu.Lock()
	c.timers.flowSet = false
	if !c.epClosed && c.core.tick() {
		c.keepFlow()
	}
	c.unlock()
}
