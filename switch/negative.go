package sanswitch

import (
	"net/netip"
	"sync"
	"time"
)

// maxNegatives bounds the destinations that are remembered. Which are forgotten does not matter much: they
// cost the next dial its head start.
const maxNegatives = 1024

// negatives remembers the destinations that could not be reached over a SAN, and why.
type negatives struct {
	ttl time.Duration

	mu sync.Mutex
	m  map[netip.AddrPort]negative
}

type negative struct {
	err   error
	until time.Time
	late  int       // lost races, as long as they are too few to tell; err is nil
	lost  time.Time // when the last of them was
}

// lateLimit is how many races in a row the SAN has to lose until that is remembered. One says little where both ends are
// on a host that is busy, and keeping connections off the SAN costs more than another head start. Races that were run
// together, as a client does that opens many connections at a time, count as one.
const lateLimit = 3

func newNegatives(ttl time.Duration) *negatives {
	return &negatives{ttl: ttl, m: make(map[netip.AddrPort]negative)}
}

// get returns why dst could not be reached, nil if nothing is remembered.
func (n *negatives) get(dst netip.AddrPort) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	neg, ok := n.m[dst]
	if ok && !time.Now().Before(neg.until) {
		delete(n.m, dst)
		return nil
	}
	return neg.err
}

// add remembers that dst could not be reached because of err.
func (n *negatives) add(dst netip.AddrPort, err error) {
	n.update(dst, func(negative, time.Time) negative { return negative{err: err} })
}

// late notes that the SAN has lost a race to dst that began at began, and remembers err once that has become a habit.
func (n *negatives) late(dst netip.AddrPort, err error, began time.Time) {
	n.update(dst, func(before negative, now time.Time) negative {
		late := 1
		if now.Before(before.until) {
			if before.late == 0 {
				return before // a failure, which another dial has seen meanwhile, tells more
			}
			late = before.late
			if began.After(before.lost) {
				late++
			}
		}
		if late < lateLimit {
			err = nil
		}
		return negative{err: err, late: late, lost: now}
	})
}

// update replaces what is remembered of dst. What has no end yet lasts for the usual time.
func (n *negatives) update(dst netip.AddrPort, next func(before negative, now time.Time) negative) {
	if n.ttl <= 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	before, ok := n.m[dst]
	if !ok && len(n.m) >= maxNegatives {
		n.shrink(now)
	}
	neg := next(before, now)
	if neg.until.IsZero() {
		neg.until = now.Add(n.ttl)
	}
	n.m[dst] = neg
}

// won notes that the SAN was fast enough.
func (n *negatives) won(dst netip.AddrPort) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.m, dst)
}

// shrink makes room for one. It needs to be called with locked mutex.
func (n *negatives) shrink(now time.Time) {
	for dst, neg := range n.m {
		if !now.Before(neg.until) {
			delete(n.m, dst)
		}
	}
	for dst := range n.m {
		if len(n.m) < maxNegatives {
			return
		}
		delete(n.m, dst)
	}
}
