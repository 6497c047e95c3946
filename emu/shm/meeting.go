//go:build linux

package shm

import (
	"net/netip"
	"time"
)

// meeting is what a rendezvous has led to. For a moment it is taken to lead there again: whether the process still listens
// it says itself, so that what may be missed is that another one has a more specific address since.
type meeting struct {
	l     *link
	until time.Time
}

const (
	meetingTime = time.Second
	maxMeetings = 1024 // that are remembered
)

// metAt returns the link that a rendezvous at a has just led to, nil if there is none.
func (n *Node) metAt(a netip.AddrPort) *link {
	n.mu.Lock()
	defer n.mu.Unlock()
	if m, ok := n.met[a]; ok && time.Now().Before(m.until) {
		return m.l
	}
	return nil
}

func (n *Node) forgetMeeting(a netip.AddrPort) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.met, a)
}

// remember notes that a rendezvous at a has led to l.
func (n *Node) remember(a netip.AddrPort, l *link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, alive := n.links[l]; !alive {
		return
	}
	if len(n.met) >= maxMeetings {
		clear(n.met)
	}
	n.met[a] = meeting{l, time.Now().Add(meetingTime)}
}
