//go:build ofi && cgo && linux

package ofi

import (
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"

	"sansock/internal/ring"
	"sansock/internal/spin"
	"sansock/provider"
)

// endpoint is one end of a connection. One goroutine, run, takes its completions, and alone ends it: it closes the fabric's
// endpoint when the peer has gone or Close wants it, and when it is over every operation has completed.
type endpoint struct {
	prov          *Provider
	fab           *fabric
	in            *info
	attr          provider.Attributes
	c             *cEndpoint
	fid           uintptr
	local, remote netip.AddrPort // set before anybody else knows the endpoint
	bound         netip.AddrPort // what the fabric calls this end, once connected

	sleeper sleeper
	news    chan event    // of the connection being made
	down    chan struct{} // closed when run has ended
	release sync.Once
	lost    atomic.Bool // the connection is over
	idling  atomic.Bool // the fabric has data for which there is no receive: PostRecv kicks

	// mu guards what follows. It comes after fabric.mu. The library is called under it only for what is quick: to post a
	// receive, and the first message.
	mu     sync.Mutex
	quiet  sync.Cond // busy has become 0
	busy   int       // calls of the library under way, which keep the endpoint from being closed
	over   bool      // nothing can be posted any more
	closed bool      // by Close
	cause  provider.Status
	wake   func()
	armed  provider.Wake
	rouse  bool // wake is to be called

	slots   []slot
	free    int32                             // first free slot plus one
	posted  [provider.OpDisconnect + 1]int    // by kind, until they are polled
	sending int                               // operations in the transmit queue
	hearing int                               // receives that the fabric has
	inlines int                               // of those, inline sends
	comps   ring.Ring[provider.Completion]    // not polled yet
	ready   atomic.Int32                      // how many
	regs    map[provider.Handle]*registration // 0 or more
	handle  provider.Handle                   // of the newest
	first   first

	fencing sync.Mutex // one fence at a time; comes before mu

	// polling is held while completions are read from the library and until they are settled. It comes before mu.
	polling sync.Mutex
	gone    bool // run is ending the connection, and alone reads from here on; under polling
	waiter  spin.Waiter
	spins   score
}

// slot is an operation that the fabric has, or that waits for the first message.
type slot struct {
	context uint64
	reg     *registration // whose memory it uses
	pin     runtime.Pinner
	buf     []byte               // of a receive that waits
	fence   chan provider.Status // takes the end of a fence
	next    int32                // in the free list
	op      provider.Op          // 0: free
	inline  bool                 // reported only if it fails
}

// Contexts of operations in the library are a slot plus one, or one of these.
const (
	contextFirstRecv uint64 = 1<<32 + iota
	contextFirstSend
)

// none is no slot.
const none int32 = -1

// newEndpoint makes an endpoint for what c says: a connection request, or an address. c remains the caller's.
func (p *Provider) newEndpoint(op string, c *cInfo, in *info) (*endpoint, error) {
	if !p.acquire() {
		return nil, p.failure(op, provider.StatusClosed, nil)
	}
	ce, err := openEndpoint(p.fab.queue.c, c, in.tx+in.rx+8)
	if err != nil {
		p.fab.release()
		return nil, p.failure(op, connectStatus(p.kind, codeOf(err)), err)
	}
	e := &endpoint{
		prov: p, fab: p.fab, in: in, attr: p.attributes(in), c: ce, fid: ce.fid(),
		news: make(chan event, 2), down: make(chan struct{}),
		regs: make(map[provider.Handle]*registration), handle: provider.Handle(rand.Uint64()),
		cause: provider.StatusDisconnected,
	}
	e.quiet.L = &e.mu
	if err = e.sleeper.open(int(ce.fd), "libfabric completions"); err == nil {
		if err = e.prepare(); err == nil {
			e.fab.attach(e)
			go e.run()
			return e, nil
		}
		e.sleeper.close()
	}
	ce.close()
	ce.closeQueue()
	ce.free()
	p.fab.release()
	return nil, p.failure(op, provider.StatusLink, err)
}

// prepare posts the receive for the first message and exposes what fences read.
func (e *endpoint) prepare() error {
	if e.fenced() {
		if err := e.c.registerFence(fenceKey); err != nil {
			return err
		}
	}
	if ret := e.c.recv(e.c.own(pageFirstRecv, firstSize), contextFirstRecv); ret != 0 {
		return &fabricError{"fi_recv", -ret}
	}
	e.hearing = 1
	return nil
}

// Attributes implements provider.Endpoint.
func (e *endpoint) Attributes() provider.Attributes { return e.attr }

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
	}
	return nil, provider.StatusUnsupported
}

// OnWake implements provider.Endpoint.
func (e *endpoint) OnWake(wake func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wake = wake
}

// Arm implements provider.Endpoint. Whether the peer sent a message as a solicited one cannot be told, so every mode covers
// every completion.
func (e *endpoint) Arm(w provider.Wake) (ready bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.armed = w
	}
	return w != provider.WakeNone && e.comps.Len() > 0
}

// Poll implements provider.Endpoint.
func (e *endpoint) Poll(c []provider.Completion) int {
	if e.ready.Load() == 0 {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for n < len(c) && e.comps.Len() > 0 {
		c[n] = e.comps.Pop()
		e.posted[c[n].Op]--
		n++
	}
	e.ready.Store(int32(e.comps.Len()))
	return n
}

// report adds a completion. Called with mu held. Who unlocks sees to rouse.
func (e *endpoint) report(c provider.Completion) {
	e.comps.Push(c)
	e.ready.Store(int32(e.comps.Len()))
	if e.armed != provider.WakeNone {
		e.armed, e.rouse = provider.WakeNone, true
	}
}

// roused returns the wake function if it is to be called. Called with mu held.
func (e *endpoint) roused() func() {
	if !e.rouse {
		return nil
	}
	e.rouse = false
	return e.wake
}

// vacant gets a slot. Called with mu held.
func (e *endpoint) vacant() int32 {
	i := e.free - 1
	if i == none {
		e.slots = append(e.slots, slot{})
		return int32(len(e.slots) - 1)
	}
	e.free = e.slots[i].next
	return i
}

// drop frees a slot and what it holds. Called with mu held.
func (e *endpoint) drop(i int32) {
	s := &e.slots[i]
	if s.reg != nil {
		s.reg.posted--
	}
	s.pin.Unpin()
	s.reg, s.buf, s.fence, s.op, s.inline = nil, nil, nil, 0, false
	s.next, e.free = e.free, i+1
}

// complete ends the operation of a slot. Called with mu held.
func (e *endpoint) complete(i int32, status provider.Status, n int) {
	s := &e.slots[i]
	c := provider.Completion{Context: s.context, Op: s.op, Status: status, Len: n}
	show := s.fence == nil && (!s.inline || status != provider.StatusOK && status != provider.StatusAborted)
	if s.inline && show {
		e.posted[s.op]++ // Poll takes it off again
	}
	if s.fence != nil {
		s.fence <- status
	}
	e.drop(i)
	if show {
		e.report(c)
	}
}

// lose notes that the connection is over, and has run end it.
func (e *endpoint) lose(cause provider.Status) {
	e.mu.Lock()
	e.loses(cause)
	e.mu.Unlock()
	e.sleeper.kick()
}

// loses is lose for those who hold mu, or are run itself; others kick.
func (e *endpoint) loses(cause provider.Status) {
	if !e.lost.Load() {
		e.cause = cause
		e.lost.Store(true)
	}
}

// managed takes an event of the connection. Called with fabric.mu held, so the fabric's endpoint is there.
func (e *endpoint) managed(ev event) {
	if ev.what == eventConnected {
		e.bound = e.c.name(false)
	}
	select {
	case e.news <- ev:
	default:
	}
	switch ev.what {
	case eventShutdown:
		e.lose(provider.StatusDisconnected)
	case eventError:
		e.lose(provider.StatusLink)
	}
}

// Close implements provider.Endpoint.
func (e *endpoint) Close() error {
	e.mu.Lock()
	e.closed = true
	e.armed = provider.WakeNone
	e.mu.Unlock()
	e.sleeper.kick()
	<-e.down
	e.waiter.Forget()
	e.release.Do(e.dispose)
	return nil
}

// dispose releases what outlives the connection: registrations and their domain.
func (e *endpoint) dispose() {
	e.mu.Lock()
	for e.busy > 0 {
		e.quiet.Wait()
	}
	for _, r := range e.regs {
		r.release()
	}
	e.mu.Unlock()
	e.c.free()
	e.fab.release()
}

// leave ends a call of the library. Called with mu held.
func (e *endpoint) leave() {
	if e.busy--; e.busy == 0 {
		e.quiet.Broadcast()
	}
}
