package session

// Beside the stream there are urgent messages and hand-over. What is done for every message looks at two bools alone: aside, and
// asideOut. note sets them, and is called after every change of what they stand for.

func (c *core) note() {
	u, s := c.urg, c.susp
	c.asideOut = c.goOnSoon != 0 || u != nil && u.pending() || s != nil && s.pending()
	c.aside = c.asideOut || u != nil && u.readers.n > 0 || s != nil && !s.over
}

// pumpAside sends what became possible.
func (c *core) pumpAside() {
	if c.goOnSoon != 0 && c.canControl() {
		c.post(kindGoOn, 0, c.goOnSoon, 0, nil, true)
		c.goOnSoon = 0
	}
	if c.urg != nil {
		c.pumpUrgent()
	}
	if c.susp != nil {
		c.pumpSuspend()
	}
	c.note()
}

// signalAside wakes who waits for something beside the stream, and can go on. It needs mu.
func (c *Conn) signalAside() {
	if c.core.urg != nil {
		c.signalUrgent()
	}
	if c.core.susp != nil {
		c.signalSuspend()
	}
}
