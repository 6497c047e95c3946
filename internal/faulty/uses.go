package faulty

import "sync"

// Uses is what a provider has been asked for, and has in use.
type Uses struct {
	Dials     int // calls of Dial and DialEarly so far
	Endpoints int // that are not closed
	Regions   int // that are not deregistered
}

// uses counts.
type uses struct {
	mu sync.Mutex // a leaf, below that of an endpoint
	// +checklocks:mu
	sum Uses
}

func (u *uses) add(more Uses) Uses {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sum.Dials += more.Dials
	u.sum.Endpoints += more.Endpoints
	u.sum.Regions += more.Regions
	return u.sum
}
