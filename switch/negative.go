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
}

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
	if n.ttl <= 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if _, ok := n.m[dst]; !ok && len(n.m) >= maxNegatives {
		n.shrink(now)
	}
	n.m[dst] = negative{err: err, until: now.Add(n.ttl)}
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
