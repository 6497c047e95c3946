//go:build linux

package shm

import (
	crand "crypto/rand"
	"maps"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"sansock/provider"
)

// Node is what a process needs to reach others, and to be reached. Its methods may be called from any goroutine.
type Node struct {
	Config
	connMemory int
	mostLinks  int
	id         [idLen]byte
	memory     atomic.Int64 // of our arenas
	closed     atomic.Bool
	done       chan struct{} // closed by Close

	mu    sync.Mutex // a leaf
	links map[*link]struct{}
	binds map[netip.AddrPort]*Rendezvous
	flows [2]map[flow]struct{} // connections that were accepted, and dialed
	budget
	meetings
}

// budget is what peers have of us. The node's mu guards it.
type budget struct {
	enlisted int                        // links, and handshakes that may lead to one
	peers    map[processKey]int         // those of each peer
	halves   map[*net.UnixConn]struct{} // handshakes of others, under way
	locals   map[netip.Addr]struct{}    // addresses of this host, as of
	asOf     time.Time
}

// meetings are how we come to links. The node's mu guards them.
type meetings struct {
	out    map[outKey]*outgoing
	asking map[netip.AddrPort]*outgoing // rendezvous that somebody asks for their process
	met    map[netip.AddrPort]meeting
}

// outKey tells processes apart. The kernel says who they are. It does not where they are in another process-id
// namespace, and then each rendezvous is taken for a process of its own, as any of them may say any id.
type outKey struct {
	process processKey
	id      [idLen]byte
	at      netip.AddrPort
}

// outgoing is a link that we have made, or are making.
type outgoing struct {
	ready  chan struct{} // closed when the others are set
	l      *link
	err    error
	wanted int    // by how many; guarded by the node's mu
	cancel func() // nobody wants it any more
}

// Open returns a node, which needs nothing before it is used.
func Open(c Config) *Node {
	c.defaults()
	sameUser := func(p Peer) bool { return p.UID == uint32(os.Geteuid()) }
	if c.Accept == nil {
		c.Accept = sameUser
	}
	if c.Reach == nil {
		c.Reach = sameUser
	}
	n := &Node{
		Config: c, connMemory: c.ConnMemory, mostLinks: linksAtMost(), done: make(chan struct{}),
		links: make(map[*link]struct{}), binds: make(map[netip.AddrPort]*Rendezvous),
		flows:    [2]map[flow]struct{}{make(map[flow]struct{}), make(map[flow]struct{})},
		budget:   budget{peers: make(map[processKey]int), halves: make(map[*net.UnixConn]struct{})},
		meetings: meetings{make(map[outKey]*outgoing), make(map[netip.AddrPort]*outgoing), make(map[netip.AddrPort]meeting)},
	}
	crand.Read(n.id[:])
	return n
}

// Attributes returns those of every endpoint.
func Attributes() provider.Attributes { return attributes }

func side(dialed bool) int {
	if dialed {
		return 1
	}
	return 0
}

// join enters a connection. It fails if there is one between the same addresses.
func (n *Node) join(f flow, dialed bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.flows[side(dialed)]
	if _, taken := m[f]; taken {
		return false
	}
	m[f] = struct{}{}
	return true
}

func (n *Node) leave(f flow, dialed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.flows[side(dialed)], f)
}

// add enters a link.
func (n *Node) add(l *link) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed.Load() {
		return false
	}
	n.links[l] = struct{}{}
	return true
}

// has reports whether a link is not ending.
func (n *Node) has(l *link) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.links[l]
	return ok
}

// unlink removes a link that is ending: it is not dialed over any more.
func (n *Node) unlink(l *link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.links, l)
	maps.DeleteFunc(n.out, func(_ outKey, o *outgoing) bool { return o.l == l })
	maps.DeleteFunc(n.met, func(_ netip.AddrPort, m meeting) bool { return m.l == l })
}

// Close closes the rendezvous, ends dials, and ends links that have no connections. Others end with their last
// connection.
func (n *Node) Close() error {
	n.mu.Lock()
	if n.closed.Swap(true) {
		n.mu.Unlock()
		return nil
	}
	close(n.done)
	var binds []*Rendezvous
	for _, r := range n.binds {
		binds = append(binds, r)
	}
	var links []*link
	for l := range n.links {
		links = append(links, l)
	}
	for c := range n.halves {
		c.SetDeadline(past)
	}
	n.mu.Unlock()
	for _, r := range binds {
		r.Close()
	}
	for _, l := range links {
		if l.retireIdle() {
			<-l.done
		}
	}
	return nil
}
