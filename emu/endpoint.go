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
	// The lock guards what follows up to the line. Nothing but the proxy driver's mutex is taken while
	// it is held, memory is copied under it only up to copyUnderLock bytes, and no wake function is
	// called.
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
