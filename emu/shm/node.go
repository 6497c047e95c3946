//go:build linux

package shm

import (
	"context"
	crand "crypto/rand"
	"errors"
	"maps"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"sansock/internal/spin"
	"sansock/provider"
)

// Supported tells whether this system has what the package needs.
const Supported = true

// Node is what a process needs to reach others, and to be reached. Its methods may be called from any goroutine.
type Node struct {
	Config
	connMemory int
	id         [idLen]byte
	memory     atomic.Int64 // of our arenas
	closed     atomic.Bool
	done       chan struct{} // closed by Close

	mu     sync.Mutex // innermost
	out    map[[idLen]byte]*outgoing
	asking map[netip.AddrPort]*outgoing // rendezvous that somebody asks for their process
	met    map[netip.AddrPort]meeting
	links  map[*link]struct{}
	binds  map[netip.AddrPort]*Rendezvous
	flows  [2]map[flow]struct{} // connections that were accepted, and dialed
	halves []*half              // handshakes under way, oldest first
}

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

// outgoing is a link that we have made, or are making.
type outgoing struct {
	ready chan struct{} // closed when the others are set
	l     *link
	err   error
}

// Open returns a node, which needs nothing before it is used.
func Open(c Config) *Node {
	c.defaults()
	if c.Trust == nil {
		c.Trust = func(uid uint32) bool { return uid == uint32(os.Geteuid()) }
	}
	n := &Node{
		Config: c, connMemory: c.ConnMemory, done: make(chan struct{}),
		out: make(map[[idLen]byte]*outgoing), asking: make(map[netip.AddrPort]*outgoing), met: make(map[netip.AddrPort]meeting), links: make(map[*link]struct{}),
		binds: make(map[netip.AddrPort]*Rendezvous),
		flows: [2]map[flow]struct{}{make(map[flow]struct{}), make(map[flow]struct{})},
	}
	crand.Read(n.id[:])
	return n
}

// Attributes returns those of every endpoint.
func Attributes() provider.Attributes { return attributes }

// reserve takes shared memory out of what this process may have; a negative size gives it back.
func (n *Node) reserve(size int64) bool {
	if n.memory.Add(size) > n.Memory && size > 0 {
		n.memory.Add(-size)
		return false
	}
	return true
}

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
	if o := n.out[l.peer]; o != nil && o.l == l {
		delete(n.out, l.peer)
	}
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
	for _, h := range n.halves {
		h.conn.Close()
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

// ephemeral ports are dialed from.
const (
	firstEphemeral = 49152
	lastEphemeral  = 65535
	portTries      = 64
)

// Dial connects to remote. A port 0 of local leaves the choice to the node; an address it must have.
// The error is a *provider.Error, as of provider.Provider's Dial.
func (n *Node) Dial(ctx context.Context, local, remote netip.AddrPort) (provider.Endpoint, error) {
	return n.DialEarly(ctx, local, remote, func(provider.Endpoint) error { return nil })
}

// DialEarly is Dial as in provider.EarlyDialer.
func (n *Node) DialEarly(ctx context.Context, local, remote netip.AddrPort, begin func(provider.Endpoint) error) (provider.Endpoint, error) {
	for range portTries {
		from := local
		if local.Port() == 0 {
			from = netip.AddrPortFrom(local.Addr(), uint16(firstEphemeral+salt()%(lastEphemeral-firstEphemeral+1)))
		}
		e, err := n.dialFrom(ctx, from, remote, begin)
		if e != nil {
			return e, nil
		}
		if local.Port() != 0 || provider.StatusOf(err) != provider.StatusAddrInUse {
			return nil, err
		}
	}
	return nil, n.failure("dial", provider.StatusAddrNotAvail, nil)
}

func (n *Node) dialFrom(ctx context.Context, local, remote netip.AddrPort, begin func(provider.Endpoint) error) (*endpoint, error) {
	if !n.join(flow{local, remote}, true) {
		return nil, n.failure("dial", provider.StatusAddrInUse, nil)
	}
	for try := 0; ; try++ {
		var l *link
		var err error
		if try == 0 {
			l = n.metAt(remote) // perhaps to no avail, and then the rendezvous tells
		}
		again := l != nil
		if !again {
			l, err = n.linkTo(ctx, remote)
		}
		if err == nil {
			var e *endpoint
			var entered bool
			if e, entered, err = l.dial(ctx, local, remote, begin); err == nil {
				return e, nil
			}
			lost := errors.Is(err, errLost) // it may have been idle for too long
			gone := again && provider.StatusOf(err) == provider.StatusNoListener
			if (lost && try < 2 || gone) && ctx.Err() == nil && !n.closed.Load() {
				n.forgetMeeting(remote)
				if lost {
					l.hangUp()
					<-l.done
				}
				if entered && !n.join(flow{local, remote}, true) {
					return nil, n.failure("dial", provider.StatusAddrInUse, nil)
				}
				continue
			}
			if entered {
				return nil, n.dialError(ctx, err) // the end of e leaves the flow
			}
		}
		n.leave(flow{local, remote}, true)
		return nil, n.dialError(ctx, err)
	}
}

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

// dialError brings an error into the form of the interface.
func (n *Node) dialError(ctx context.Context, err error) error {
	var p *provider.Error
	switch {
	case n.closed.Load():
		return n.failure("dial", provider.StatusClosed, nil)
	case ctx.Err() == context.DeadlineExceeded:
		return n.failure("dial", provider.StatusTimeout, ctx.Err())
	case ctx.Err() != nil:
		return n.failure("dial", provider.StatusAborted, ctx.Err())
	case errors.As(err, &p):
		return &provider.Error{Provider: n.Name, Op: "dial", Status: p.Status, Reason: p.Reason, Err: p.Err}
	}
	s := provider.StatusOf(err)
	if s == err {
		err = nil
	}
	return n.failure("dial", s, err)
}

// dial makes a connection over the link. After an error, entered says that the connection existed for a moment, and that
// its end sees to the flow.
func (l *link) dial(ctx context.Context, local, remote netip.AddrPort, begin func(provider.Endpoint) error) (e *endpoint, entered bool, err error) {
	if short := l.backlog(); short != nil { // many dial at once, or the peer does not move
		select {
		case <-short:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		case <-l.node.done:
			return nil, false, provider.StatusClosed
		}
	}
	e, err = newEndpoint(l, local, remote)
	if err == provider.StatusDisconnected {
		err = errLost
	}
	if err != nil {
		return nil, false, err
	}
	e.dial.answer = make(chan error, 1)
	if err = begin(e); provider.StatusOf(err) == provider.StatusDisconnected {
		err = errLost
	}
	e.mu.Lock() // the answer waits until the question is complete
	if err == nil && e.over() {
		err = provider.StatusLink // the peer has put nonsense where it did not know that there would be an inbox
	}
	if err == nil {
		err = l.enter(e)
	}
	if err != nil {
		e.mu.Unlock()
		e.Close()
		return nil, false, err
	}
	e.stage = stageAsked
	c := control{kind: ctlRequest, conn: e.id, inbox: e.in.blk.at, local: local, remote: remote, first: e.dial.first}
	e.dial.first = nil
	l.sendControl(c)
	e.mu.Unlock()
	if !e.glance() {
		e.mu.Lock()
		if e.in.arm != nil {
			e.in.arm.Swap(uint64(provider.WakeAny)) // see words
		}
		e.mu.Unlock()
		e.look()
	}
	select {
	case err = <-e.dial.answer:
		if err == nil {
			return e, true, nil
		}
	case <-ctx.Done():
		err = ctx.Err()
	case <-l.node.done:
		err = provider.StatusClosed
	}
	e.Close()
	return nil, true, err
}

// replied ends the dial of e, if it waits, with an error.
func (e *endpoint) replied(err error) {
	if e.dial.answer != nil {
		select {
		case e.dial.answer <- err:
		default:
		}
	}
}

// welcomed notes that the peer has accepted, and where its inbox is. Called with mu held.
func (e *endpoint) welcomed(place ptr) outcome {
	b, ok := at(*e.l.peerSegs.Load(), place, inboxSize)
	if !ok {
		return later // perhaps
	}
	e.stage = stageOpen
	e.out.inbox = view(b)
	e.in.arm.Swap(e.arming()) // what was there was for this; see words
	e.replied(nil)
	return taken
}

// look reports whether the peer has accepted, or the dial is over.
func (e *endpoint) look() bool {
	e.lockDrained(device)
	defer e.mu.Unlock()
	return e.stage > stageAsked
}

// glance looks for the answer for a moment, under the rules for spinning, by yielding.
func (e *endpoint) glance() bool {
	if !spin.Begin() {
		return false
	}
	defer spin.End()
	if !e.yield(&e.l.dialing, e.look) {
		return false
	}
	// Nobody else spins, and it pays off: so will it for what the dialer waits for next.
	e.waiter.Favour()
	return true
}

// refused acts on the refusal of the request of e. An error ends the link.
func (e *endpoint) refused(c *control) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stage != stageAsked && e.stage != stageLeft {
		return errWire
	}
	st := c.status
	switch st {
	case provider.StatusRefused, provider.StatusNoListener, provider.StatusAddrInUse, provider.StatusNoMemory,
		provider.StatusLimit:
	default:
		st = provider.StatusLink
	}
	e.replied(&provider.Error{Status: st, Reason: append([]byte(nil), c.reason...)})
	// There is no connection, and the peer expects no word of its end.
	e.depart()
	return nil
}
