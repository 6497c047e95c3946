package session

import "context"

// gate is where those wait who need not be fast: users of urgent data, and of hand-over. It needs Conn.mu.
type gate struct {
	n  int           // how many wait
	ch chan struct{} // closed, and forgotten, when they may go on
}

func (g *gate) wake() {
	if g.ch != nil {
		close(g.ch)
		g.ch = nil
	}
}

// await waits until g is woken, or ctx ends. It needs mu, which it gives up meanwhile: who waits here does
// not poll, so a wake-up of the provider's has a goroutine see to it.
func (c *Conn) await(ctx context.Context, g *gate) {
	if g.ch == nil {
		g.ch = make(chan struct{})
	}
	ch := g.ch
	g.n++ // from here on signal wakes it
	c.core.note()
	c.unlock()
	select {
	case <-ch:
	case <-ctx.Done():
	}
	c.lock()
	g.n--
	c.core.note()
}
