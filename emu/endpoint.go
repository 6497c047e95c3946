package emu

import (
	"net/netip"
	"sync/atomic"

	"sansock/internal/regtable"
	"sansock/internal/ring"
	"sansock/provider"
)

// gate says what an endpoint takes from the other side.
type gate uint8

const (
	gateOver gate = 1 << iota // nothing any more: the connection has ended here
	gateLost                  // the link swallows everything, and nobody is told
)

// life is how far the application's Close of an endpoint has come.
type life uint8

const (
	lifeOpen     life = iota
	lifeClosed        // Close has been called: nothing is posted any more
	lifeReleased      // and has given back what was registered
)

// endpoint is the NIC's side of one end of a connection: its queues. A message goes from the
// goroutine that sends it straight into the receive that the peer has posted, under the peer's lock
// alone. The two ends' locks are never held together, so they need no order.
type endpoint struct {
	// The lock guards what follows up to the line. Nothing but the proxy driver's mutex is taken
	// while it is held, memory is copied under it only up to copyUnderLock bytes, and no wake
	// function is called.
	lockWord
	gate  gate
	life  life
	last  last
	cq    completions
	rq    receives
	table regtable.Table
	work  work
	stuck ring.Ring[op] // operations that will never get an answer
	// ----

	wake func() // set before the first Arm

	// Never changed.
	slow *slow // delayed completions; nil: none
	peer *endpoint
	attr *provider.Attributes
	prov *Provider
	conn *conn

	older *endpoint // these two are the list of the provider's endpoints, under its mutex
	newer *endpoint
}

// conn is a connection: its two ends, made together.
type conn struct {
	ends  [2]endpoint // the dialer's and the listener's
	addr  [2]netip.AddrPort
	links [2]*link // what the ends send goes through these; nil: directly
	open  atomic.Int32
	fab   *Fabric
}

func (e *endpoint) side() int {
	if e == &e.conn.ends[0] {
		return 0
	}
	return 1
}

// Attributes implements provider.Endpoint.
func (e *endpoint) Attributes() provider.Attributes { return *e.attr }

// LocalAddr implements provider.Endpoint.
func (e *endpoint) LocalAddr() netip.AddrPort { return e.conn.addr[e.side()] }

// RemoteAddr implements provider.Endpoint.
func (e *endpoint) RemoteAddr() netip.AddrPort { return e.conn.addr[1-e.side()] }

// Extension implements provider.Endpoint.
func (e *endpoint) Extension(id provider.GUID) (any, error) {
	switch {
	case id == provider.GUIDRDMARead && e.attr.RDMARead:
		return provider.RDMAReader(e), nil
	case id == provider.GUIDAppender && e.prov.appends:
		return provider.Appender(e), nil
	}
	return nil, provider.StatusUnsupported
}

// refusal is why an operation cannot be posted here, StatusOK if it can. Called with the lock held.
func (e *endpoint) refusal() provider.Status {
	switch {
	case e.life != lifeOpen:
		return provider.StatusClosed
	case e.gate&gateOver != 0:
		return provider.StatusDisconnected
	}
	return provider.StatusOK
}

// recv is a posted receive.
type recv struct {
	ctx  uint64
	off  int // in the registered memory
	size uint32
	slot int32
}

// receives is the receive queue of an endpoint.
type receives struct {
	posted  ring.Ring[recv]
	room    []byte // the receive of the newest open message, as far as that may fill it
	copying bool   // a long message is on its way into a receive: others wait, to keep the order
	first   first
	held    []byte // the first message, while it is held
}

// first is what has become of the first message, which may come before a receive is posted.
type first uint8

const (
	firstAwaited    first = iota
	firstHeld             // in held, until a receive is posted
	firstHeldUrgent       // likewise, and it wakes for WakeSolicited
	firstTaken            // it has got a receive
)

// comp is a completion on its way to Poll.
type comp struct {
	ctx    uint64
	n      uint32
	op     provider.Op
	status provider.Status
	urgent bool // wakes for WakeSolicited
	open   bool // a message that may grow, see Append
}

// completions is the completion queue of an endpoint.
type completions struct {
	ring   ring.Ring[comp]
	urgent uint32                            // completions in ring that wake for WakeSolicited
	hidden uint32                            // the newest in ring, which are not to be seen yet
	posted [provider.OpDisconnect + 1]uint32 // operations posted and not yet polled, by kind
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

// op is a posted operation that has not completed.
type op struct {
	ctx  uint64
	slot int32
	op   provider.Op
}
