package session

// The receive region grows with a sustained flow, and becomes small again when the connection has been silent.
const (
	// sustained is how many times its receive region a flow has to fill before it gets a larger one.
	sustained = 2

	// growAgain is how much a flow has to bring, at least, after growing has failed, until that is tried again.
	growAgain = 1 << 20
)

// grow replaces the receive region by the next larger one, if the flow is sustained and the last change is over.
func (c *core) grow() {
	if c.level+1 >= len(c.levels) || c.sinceGrow < c.growAt ||
		c.level > 0 && c.sinceGrow < sustained*c.recv[c.cur].bytes() {
		return
	}
	c.changeLevel(c.level + 1)
}

// shrink returns to the smallest receive region, unless there is unread data. Buffers left of an earlier change have
// to be used up before.
func (c *core) shrink() {
	switch {
	case c.level == 0 || c.queue.Len() > 0 || c.line.state != lineUp:
		c.shrinking = false
	case c.recv[c.cur^1].live():
		if !c.shrinking {
			c.want(letterDrain)
		}
		c.shrinking = true
	default:
		c.shrinking = false
		c.changeLevel(0)
	}
}

// changeLevel replaces the receive region, if the last change is over and the provider has the memory.
func (c *core) changeLevel(to int) {
	other := c.cur ^ 1
	if c.recv[other].live() || !c.announced || c.err != nil ||
		c.line.state >= lineQuiet || c.life >= lifeAborting {
		return
	}
	if err := c.recv[other].open(c.ep, other, c.levels[to]); err != nil {
		c.stats.GrowFailures++
		// There may be memory later. The more has been received, the less it matters what trying again costs.
		c.growAt = c.sinceGrow + min(max(c.sinceGrow, growAgain), 256*growAgain)
		if c.recv[other].posted == 0 {
			c.recv[other].release(c.ep)
		} else {
			// Half posted, and no way to take that back.
			c.failed(err)
		}
		return
	}
	// From here on old buffers are not posted again; those still ungranted go with the resize.
	c.recv[c.cur].retired = true
	if to < c.level {
		c.want(letterShrink)
	} else {
		c.want(letterGrow)
	}
	c.cur, c.level, c.sinceGrow = other, to, 0
	c.growAt, c.announced = 0, false
}
