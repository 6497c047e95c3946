package session

// A flow is small writes that follow each other faster than the peer reads. They are gathered until there are enough for a message
// that is worth its cost, the writer does something else, or the peer's reader has nothing left: every message of a flow says want,
// which a Read that finds nothing more, and is about to sleep, answers with dry. So a reader that is at work wakes nobody for
// credits, while the writer comes by all the time anyway, and one that is not gets at once what there is.
const (
	flowGoal  = 8 << 10 // gathered bytes that are worth a message, if the writes are not larger
	flowCount = 16      // writes, if they are
)

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

// dried acts on the peer's word that it has nothing left to read.
func (c *core) dried() {
	c.told, c.flow = false, false // what is held leaves with the pump that follows
}

// dryUp tells a peer that wants to know that there is nothing left to read: as soon as that can leave, as pump calls it while a Read
// sleeps.
func (c *core) dryUp() {
	if c.peerWant && c.queue.n == 0 && c.canControl() {
		c.peerWant = false
		c.post(kindNop, flagDry, 0, 0, nil, true)
	}
}
