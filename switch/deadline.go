package sanswitch

import (
	"sync"
	"time"
)

// deadline is a point in time that can be moved while it is waited for. The zero deadline never comes.
type deadline struct {
	mu sync.Mutex // a leaf
	// +checklocks:mu
	at time.Time
	// +checklocks:mu
	changed chan struct{} // closed, and forgotten, when at is set
}

// get returns the time, and a channel that is closed when it is set again.
func (d *deadline) get() (time.Time, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.changed == nil {
		d.changed = make(chan struct{})
	}
	return d.at, d.changed
}

func (d *deadline) set(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = at
	if d.changed != nil {
		close(d.changed)
		d.changed = nil
	}
}
