//go:build linux

package shm

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"sansock/internal/regtable"
	"sansock/internal/ring"
	"sansock/internal/spin"
	"sansock/provider"
)

// stage is how far a connection has come, seen from one end.
type stage uint8

const (
	stageEarly stage = iota // the peer has not heard of this end, see DialEarly and AcceptEarly
	stageAsked              // the dialer's: the request has been sent, and not been answered
	stageOpen               // both ends know each other
	stageLeft               // the dialer's: it has ended before there was an answer
	stageOver               // this end touches nothing shared any more
	stageGone               // nor does the peer, and what was shared has been given back
)

// endpoint is one end of a connection.
type endpoint struct {
	// Never changed, from when the connection has its number.
	l      *link
	id     uint32
	local  netip.AddrPort
	remote netip.AddrPort

	// mu guards what follows up to the line. Under it are the locks of the arena, the link and the
	// node, and the socket's for sending, but not that for receiving. The wake function is called
	// with mu held, as it must not block and not call the provider; so Close need not wait for it.
	mu     sync.Mutex
	stage  stage
	closed bool // by the application
	armed  armed
	out    outward
	in     inward
	cq     completions
	table  regtable.Table
	mem    memory
	reqs   *[maxRDMAs]req // RDMA of our own; nil: none yet
	last   last
	dial   dial
	// ----

	// expected says that the link counts it among those that the peer has yet to end. The link's mu
	// guards it.
	expected bool

	waiter spin.Waiter
	spins  spins // of the one who spins
	park   spot
}

// outward is what goes to the peer.
type outward struct {
	inbox        // the peer's; without memory as long as the dialer does not know it
	sent  uint32 // messages
	given uint32 // events
	tail  tail   // the message sent last
}

// inward is what comes from the peer.
type inward struct {
	inbox    // ours, in blk
	blk      block
	recvs    ring.Ring[recv]
	posted   uint32 // receives
	taken    uint32 // events
	attended uint32 // of these, when attend was called last
	noted    unread // what unread says
	first    first
	kept     []byte // the first message, while it is kept
}

// first is what has become of the peer's first message, which may come before a receive is posted.
type first uint8

const (
	firstAwaited    first = iota
	firstKept             // until a receive is posted
	firstKeptUrgent       // likewise, and it wakes for WakeSolicited
	firstTaken            // it has got a receive
)

// memory is what a connection has of the arena, besides its inbox.
type memory struct {
	bytes int
	stale []block // to be given back when the peer does not use them any more
	loose ptr     // a receive behind whose message the peer may still be writing; 0: none
}

// dial is what a dialer has until it is answered.
type dial struct {
	answer chan error // holds one; nil: not a dialer's
	first  []byte     // the message that travels with the request
}

// over reports whether this end has ended. Called with mu held.
func (e *endpoint) over() bool { return e.stage >= stageLeft }

func newEndpoint(l *link, local, remote netip.AddrPort) (*endpoint, error) {
	e := &endpoint{l: l, local: local, remote: remote}
	b, fresh, err := l.arena.alloc(inboxSize)
	if err != nil {
		return nil, err
	}
	if !fresh {
		clear(b.mem)
	}
	e.in.blk, e.in.inbox = b, view(b.mem)
	e.table.Salt = salt()
	return e, nil
}

// Attributes implements provider.Endpoint.
func (e *endpoint) Attributes() provider.Attributes { return attributes }

// LocalAddr implements provider.Endpoint.
func (e *endpoint) LocalAddr() netip.AddrPort { return e.local }

// RemoteAddr implements provider.Endpoint.
func (e *endpoint) RemoteAddr() netip.AddrPort { return e.remote }

// Extension implements provider.Endpoint.
func (e *endpoint) Extension(id provider.GUID) (any, error) {
	switch id {
	case provider.GUIDRDMARead:
		return provider.RDMAReader(e), nil
	case provider.GUIDSpinner:
		return provider.Spinner(e), nil
	case provider.GUIDSleeper:
		return provider.Sleeper(e), nil
	case provider.GUIDAppender:
		return provider.Appender(e), nil
	}
	return nil, provider.StatusUnsupported
}

// refusal is why nothing can be posted, StatusOK if it can. Called with mu held.
func (e *endpoint) refusal() provider.Status {
	switch {
	case e.closed:
		return provider.StatusClosed
	case e.over():
		return provider.StatusDisconnected
	}
	return provider.StatusOK
}

// req is an RDMA operation of our own. Its data goes through a block of our arena: the peer, who
// owns the other memory, checks the request and moves the bytes between the two.
type req struct {
	ctx   uint64
	local []byte
	stage block
	slot  int32
	op    provider.Op // 0: free
}

// recv is a posted receive.
type recv struct {
	ctx    uint64
	at     ptr
	bounce []byte // in the arena, for a receive that is not
	off    int    // in the registered memory
	size   uint32
	slot   int32
}

// outcome is what has become of an event.
type outcome uint8

const (
	taken outcome = iota
	later         // it names memory whose announcement is still in the socket
	wrong         // it makes no sense
)

// completions is the completion queue of an endpoint.
type completions struct {
	ring   ring.Ring[comp]
	urgent uint32                            // in ring: those that wake for WakeSolicited
	opens  uint32                            // in ring: messages that were open
	posted [provider.OpDisconnect + 1]uint32 // operations posted and not polled, by kind
}

// comp is a completion on its way to Poll.
type comp struct {
	ctx    uint64
	n      uint32
	op     provider.Op
	status provider.Status
	urgent bool // wakes for WakeSolicited
	open   bool // a message that was open
}

// last is the last completion, which tells of the end of the connection.
type last struct {
	stage lastStage
	cause provider.Status
}

type lastStage uint8

const (
	lastNone lastStage = iota // the connection has not ended, or Close was first
	lastPending
	lastReported
)

// armed is how an endpoint is armed.
type armed struct {
	mode    provider.Wake
	looking bool          // Arm looks, and reports what it finds by itself
	stands  atomic.Uint32 // mode, if nothing it covers waits and nobody parks; stored with mu
	wake    func()
}

// spins is how the parts of Spin have paid off.
type spins struct {
	pausing  score
	yielding pace
}
