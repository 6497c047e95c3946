package session

// Quiet reports that nothing is set to happen on c by itself, other than the end of its timers for silence.
func Quiet(c *Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.timers.soonSet && c.kicks.Load() == 0
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
	ShrinkAfter   = shrinkAfter
)

// Lent is how many receive buffers the application keeps.
func Lent(c *Conn) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.core.lent
}
