//go:build linux

package shm

import "golang.org/x/sys/unix"

// What a peer, and all of them together, may cost: links, each of which is two mappings, seven descriptors and the first bytes of
// memory, and bytes. Handshakes under way count as links. A peer that wants more is refused with a reason, and goes
// over TCP.
const (
	maxPeerLinks = 64
	maxLinks     = 4096
	linkCost     = 7 // descriptors
)

// processKey tells a peer from others. The kernel vouches for it. Processes that have no number here share one.
type processKey struct {
	pid int
	uid uint32
}

func (p Peer) key() processKey { return processKey{p.PID, p.UID} }

// linksAtMost is how many links this process may have.
func linksAtMost() int {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) != nil {
		return maxLinks
	}
	return int(min(maxLinks, r.Cur/2/linkCost+1))
}

// enlist counts a handshake, or the link that it leads to, until that is settled.
func (n *Node) enlist(k processKey) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.enlisted >= n.mostLinks || k.pid != 0 && n.peers[k] >= maxPeerLinks {
		return false
	}
	n.enlisted++
	n.peers[k]++
	return true
}

func (n *Node) discharge(k processKey) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.enlisted--
	if n.peers[k]--; n.peers[k] <= 0 {
		delete(n.peers, k)
	}
}

// settle notes that nothing of l is left.
func (n *Node) settle(l *link) { n.discharge(l.key) }

// perPeer is how many bytes one peer may have, and we for it.
func (n *Node) perPeer() int64 { return max(n.Memory/2, firstSegment) &^ (page - 1) }

// reserve takes shared memory out of what this process may have; a negative size gives it back.
func (n *Node) reserve(size int64) bool {
	if n.memory.Add(size) > n.Memory && size > 0 {
		n.memory.Add(-size)
		return false
	}
	return true
}

// accepts reports whether a process may connect to us.
func (n *Node) accepts(p Peer) bool { return p.UID != overflowUID() && n.Accept(p) }

// reaches reports whether we may connect to a process.
func (n *Node) reaches(p Peer) bool { return p.UID != overflowUID() && n.Reach(p) }
