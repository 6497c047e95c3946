package session

import (
	"context"
	"net/netip"
	"slices"
	"sync"
)

// callers are those who are being heard at the address of a suspended session, longest first. Anybody who reaches the address can
// call, as often as he likes, and a token of 256 bits is not found by trying. So nobody is counted: a newcomer is always heard, and
// where there are too many the one goes who has been there longest, of the host that has most. Hosts that do not know
// the token get in each other's way, and not in that of the one that does, unless it is there, too: then it has
// the time that it takes the others to call maxCallers times, and can call again.
type callers struct {
	mu   sync.Mutex // a leaf
	list []*caller
}

type caller struct {
	host  netip.Addr
	leave context.CancelFunc // ends the wait for it
	gone  bool               // it had to go: its token is not looked at any more
	known bool               // it has shown the token, and stays
}

// enter lets one in.
func (l *callers) enter(c *caller) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, c)
	if len(l.list) <= maxCallers {
		return
	}
	most, from := 0, make(map[netip.Addr]int)
	for _, c := range l.list {
		if !c.known {
			from[c.host]++
			most = max(most, from[c.host])
		}
	}
	i := slices.IndexFunc(l.list, func(c *caller) bool { return !c.known && from[c.host] == most })
	c = l.list[i]
	c.gone = true
	c.leave()
	l.list = slices.Delete(l.list, i, i+1)
}

// exit lets one out.
func (l *callers) exit(c *caller) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.list, c); i >= 0 {
		l.list = slices.Delete(l.list, i, i+1)
	}
}

// know lets one stay who has the token, unless it had to go. It reports whether it stays.
func (l *callers) know(c *caller) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.known = !c.gone
	return c.known
}
