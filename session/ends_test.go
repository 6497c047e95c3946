package session

// isDone reports that a core is done with its endpoint.
func isDone(c *core) bool { return c.life == lifeDone }

// isBroken reports that a core's connection has broken.
func isBroken(c *core) bool { return c.err != nil || c.peer == peerReset }

// unlockIdle ends a look at the Conn that has changed nothing.
func (c *Conn) unlockIdle() {
	c.mu.Unlock()
	if c.missed.Load() && c.missed.Swap(false) {
		c.kick()
	}
}
