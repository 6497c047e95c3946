package session

import "sync"

// turn lets one Read, or one Write, at a time go through its loop, in which it gives up Conn.mu while it sleeps. Where
// nobody else wants the turn, it costs nothing beyond mu. Its methods need mu.
type turn struct {
	taken   bool
	waiting int32
	ended   uint32 // turns that have
	free    *sync.Cond
}

func (t *turn) begin(mu *sync.Mutex) {
	for t.taken {
		if t.free == nil {
			t.free = sync.NewCond(mu)
		}
		t.waiting++
		t.free.Wait()
		t.waiting--
	}
	t.taken = true
}

func (t *turn) end() {
	t.taken = false
	t.ended++
	if t.waiting > 0 {
		t.free.Signal()
	}
}
