package session

// Quiet reports that nothing is set to happen on c by itself, other than the end of its timers for silence.
func Quiet(c *Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.timers.soonSet && c.kicks.Load() == 0
}

// Held is how many bytes are gathered.
func Held(c *Conn) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.core.held)
}

// Over reports that c has closed its endpoint.
func Over(c *Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epClosed
}

const (
	RevokeTimeout = revokeTimeout
	CloseTimeout  = closeTimeout
	FlushTimeout  = flushTimeout
	ShrinkAfter   = shrinkAfter
)

// Lent is how many receive buffers the application keeps.
func Lent(c *Conn) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.core.lent
}
