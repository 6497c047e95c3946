package session

// isDone reports that a core is done with its endpoint.
func isDone(c *core) bool { return c.life == lifeDone }

// isBroken reports that a core's connection has broken.
func isBroken(c *core) bool { return c.err != nil || c.peer == peerReset }
