package sanswitch

import (
	"sync"
	"time"
)

// deadline is a point in time that can be moved while it is waited for. The zero time never comes.
type deadline struct {
	mu sync.Mutex // a leaf
	// +checklocks:mu
	at time.Time
	// +checklocks:mu
	changed chan struct{} // closed, and replaced, when at is set
}

func newDeadline() *deadline { return &deadline{changed: make(chan struct{})} }

// get returns the time, and a channel that is closed when it is set again.
func (d *deadline) get() (time.Time, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at, d.changed
}

func (d *deadline) set(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = at
	close(d.changed)
	d.changed = make(chan struct{})
}
