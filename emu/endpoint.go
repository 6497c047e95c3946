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

// Stages of the last completion.
const (
	discNone uint8 = iota
	discPending
	discReported
)

// recv is a posted receive.
type recv struct {
	ctx  uint64
	off  int // in the registered memory
	size uint32
	slot int32
}

// comp is a completion on its way to Poll.
type comp struct {
	ctx    uint64
	n      uint32
	op     provider.Op
	status provider.Status
	urgent bool // wakes for WakeSolicited
	open   bool // a message that may grow, see Append
}

// op is a posted operation that has not completed.
type op struct {
	ctx  uint64
	slot int32
	op   provider.Op
}

// endpoint is the NIC's side of one end of a connection: its queues. A message goes from the goroutine that sends it
// straight into the receive that the peer has posted, under the peer's lock alone. The two ends' locks are never held
// together, so they need no order.
type endpoint struct {
	// The lock guards what follows up to the line. Nothing but the proxy driver's mutex is taken while it is held, memory
	// is copied under it only up to copyUnderLock bytes, and no wake function is called.
	lockWord
	gate    gate
	copying bool   // a long message is on its way into a receive: others wait, to keep the order
	started bool   // the first message has come
	urgent  uint32 // urgent completions in comps
	hidden  uint32 // the newest completions in comps, which are not to be seen yet
	comps   ring.Ring[comp]
	recvs   ring.Ring[recv]
	room    []byte // the receive of the newest open message, as far as that may fill it
	table   regtable.Table
	out     [provider.OpDisconnect + 1]uint32 // operations posted and not yet polled, by kind

	busy       int32 // own operations under way in some goroutine
	access     int32 // accesses of the peer to our memory under way
	disc       uint8
	cause      provider.Status
	closed     bool
	released   bool
	idle       chan struct{} // closed when one of the counts above falls: somebody waits
	heldUrgent bool
	held       []byte        // the first message, come before a receive was posted
	stuck      ring.Ring[op] // operations that will never get an answer
	// ----

	wake func() // set before the first Arm

	// Never changed.
	slow *slow // delayed completions; nil: none
	peer *endpoint
	attr *provider.Attributes
	prov *Provider
	conn *conn

	older, newer *endpoint // list of the provider's endpoints, under its mutex
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
	case e.closed:
		return provider.StatusClosed
	case e.gate&gateOver != 0:
		return provider.StatusDisconnected
	}
	return provider.StatusOK
}

// PostRecv implements provider.Endpoint.
func (e *endpoint) PostRecv(r provider.Recv) error {
	e.lock()
	if e.gate&gateOver != 0 {
		s := e.refusal()
		e.unlock()
		return s
	}
	if e.out[provider.OpRecv] >= uint32(e.attr.MaxRecvs) {
		e.unlock()
		return provider.StatusQueueFull
	}
	i, off, ok := e.table.Local(&r.Buffer)
	if !ok {
		e.unlock()
		return provider.StatusLocal
	}
	e.out[provider.OpRecv]++
	e.table.Slots[i].Posted++
	e.recvs.Push(recv{ctx: r.Context, off: off, size: uint32(min(len(r.Buffer.Bytes), maxMessage)), slot: i})
	if e.held == nil {
		e.unlock()
		return nil
	}
	return e.deliverHeld()
}

// Poll implements provider.Endpoint.
func (e *endpoint) Poll(c []provider.Completion) int {
	if e.state.Load()&lockSome == 0 {
		return 0
	}
	n := 0
	e.lock()
	for n < len(c) && e.comps.Len() > int(e.hidden) {
		p := e.comps.Front()
		c[n] = provider.Completion{Context: p.ctx, Op: p.op, Status: p.status, Len: int(p.n)}
		n++
		e.out[p.op]--
		if p.urgent {
			e.urgent--
		}
		e.comps.Skip()
	}
	if e.gate&gateOver != 0 && n < len(c) && e.settled() {
		n += e.pollEnd(c[n:])
	}
	e.unlock()
	return n
}

// settled reports that nothing is under way that would still complete by itself. Called with the lock held.
func (e *endpoint) settled() bool { return e.busy == 0 && !e.copying }

// pollEnd reports what the end of the connection left: operations cut short, then the end itself. They need no place
// in the completion queue, so the end needs no memory. Called with the lock held.
func (e *endpoint) pollEnd(c []provider.Completion) (n int) {
	for ; n < len(c) && e.recvs.Len() > 0; n++ {
		r := e.recvs.Front()
		c[n] = provider.Completion{Context: r.ctx, Op: provider.OpRecv, Status: provider.StatusAborted}
		e.out[provider.OpRecv]--
		e.recvs.Skip()
	}
	for ; n < len(c) && e.stuck.Len() > 0; n++ {
		o := e.stuck.Front()
		c[n] = provider.Completion{Context: o.ctx, Op: o.op, Status: provider.StatusAborted}
		e.out[o.op]--
		e.stuck.Skip()
	}
	if n < len(c) && e.disc == discPending {
		c[n] = provider.Completion{Op: provider.OpDisconnect, Status: e.cause}
		e.disc = discReported
		n++
	}
	return n
}

// OnWake implements provider.Endpoint.
func (e *endpoint) OnWake(wake func()) {
	e.lock()
	e.wake = wake
	e.unlock()
}

// Arm implements provider.Endpoint.
func (e *endpoint) Arm(w provider.Wake) (ready bool) {
	s := e.state.Load()
	if s&(lockSome|armedMask) == uint32(w)*lockArmed {
		return false // it is in force already, and what had come before is polled
	}
	if s&(lockHeld|lockSome) == 0 && e.state.CompareAndSwap(s, s&^armedMask|uint32(w)*lockArmed) {
		return false
	}
	e.lock()
	if !e.closed {
		e.arm(w)
	}
	ready = e.waiting(w)
	e.unlock()
	return ready
}

// waiting reports whether Poll would return something that w covers. Called with the lock held.
func (e *endpoint) waiting(w provider.Wake) bool {
	if w == provider.WakeNone {
		return false
	}
	if e.gate&gateOver != 0 && e.settled() && (e.recvs.Len() > 0 || e.stuck.Len() > 0 || e.disc == discPending) {
		return true
	}
	seen := e.comps.Len() - int(e.hidden)
	if w == provider.WakeAny || e.urgent == 0 || e.hidden == 0 {
		return seen > 0 && (w == provider.WakeAny || e.urgent > 0)
	}
	for i := range seen {
		if e.comps.At(i).urgent {
			return true
		}
	}
	return false
}

// wait releases the lock until a count has fallen. Called with the lock held, which it holds again when it returns.
func (e *endpoint) wait() {
	if e.idle == nil {
		e.idle = make(chan struct{})
	}
	c := e.idle
	e.unlock()
	<-c
	e.lock()
}

// signal ends every wait. Called with the lock held.
func (e *endpoint) signal() {
	if e.idle != nil {
		close(e.idle)
		e.idle = nil
	}
}

// push reports a completion, and whether to call callWake. Called with the lock held.
func (e *endpoint) push(c comp) bool {
	e.comps.Push(c)
	if c.urgent {
		e.urgent++
	}
	if e.slow != nil {
		return e.slow.hold(e, c.urgent)
	}
	return e.rouse(c.urgent)
}

// Close implements provider.Endpoint.
func (e *endpoint) Close() error {
	e.lock()
	first, lost := !e.closed, e.gate&gateLost != 0
	e.closed = true
	e.gate |= gateOver
	e.hidden = 0
	e.arm(provider.WakeNone)
	e.state.Or(lockClosing)
	e.unlock()

	if first {
		e.flush(true) // what has been sent arrives
		if !lost {
			e.peer.shut()
			e.peer.flush(true)
			e.peer.report(provider.StatusDisconnected)
		}
	}
	// From the gate on nothing begins. What is under way looks at it between pieces, and a wake function is quick.
	e.lock()
	for e.busy != 0 || e.access != 0 || e.copying || e.state.Load() >= lockWaker {
		e.wait()
	}
	if first {
		e.held = nil
		if e.slow != nil {
			e.slow.alarm.Stop()
		}
		e.release()
	}
	e.unlock()
	if first {
		e.prov.forget(e)
		if e.conn.open.Add(-1) == 0 {
			e.conn.fab.putDown(e.conn.addr[0], e.conn.addr[1])
		}
	}
	return nil
}

// sever ends the connection at both ends, for a reason that neither end wanted. Both are shut before either
// hears of it: who has seen the end cannot send any more.
func (e *endpoint) sever(cause provider.Status) {
	e.shut()
	e.peer.shut()
	e.flush(false)
	e.peer.flush(false)
	e.report(cause)
	e.peer.report(cause)
}

// shut makes e take nothing more. When it returns, the peer does not touch the receives of e any more.
func (e *endpoint) shut() {
	e.lock()
	e.gate |= gateOver
	e.hidden = 0
	for e.copying {
		e.wait()
	}
	e.unlock()
}

// report tells of the end, after shut.
func (e *endpoint) report(cause provider.Status) {
	e.lock()
	if e.disc == discNone && !e.closed {
		e.disc, e.cause = discPending, cause
	}
	wake := e.rouse(true)
	e.unlock()
	if wake {
		e.callWake()
	}
}

// lose makes the link of e swallow everything in both directions.
func (e *endpoint) lose() {
	for _, x := range [2]*endpoint{e, e.peer} {
		x.lock()
		x.gate |= gateLost
		x.unlock()
	}
	e.flush(false)
	e.peer.flush(false)
}

// flush flushes what e sends through, if it has a shape.
func (e *endpoint) flush(inOrder bool) {
	if l := e.egress(); l != nil {
		l.flush(inOrder)
	}
}
