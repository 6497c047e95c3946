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

// recv is a posted receive.
type recv struct {
	ctx    uint64
	at     ptr
	bounce []byte // in the arena, for a receive that is not
	off    int    // in the registered memory
	size   uint32
	slot   int32
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

// Stages of the last completion.
const (
	discNone uint8 = iota
	discPending
	discReported
)

// endpoint is one end of a connection.
type endpoint struct {
	// mu guards all below it. Under it are the locks of the arena and the link, but not that of the link for
	// receiving. The wake function is called with mu held, as it must not block and not call the provider; so
	// Close need not wait for it.
	mu     sync.Mutex
	comps  ring.Ring[comp]
	recvs  ring.Ring[recv]
	table  regtable.Table
	reqs   *[maxRDMAs]req // RDMA of our own; nil: none yet
	out    inbox          // the peer's
	in     inbox
	inBlk  block
	held   []byte                            // the first message, come before a receive was posted
	posts  [provider.OpDisconnect + 1]uint32 // operations posted and not polled, by kind
	urgent uint32                            // urgent completions in comps

	tail   tail   // the message sent last
	loose  ptr    // a receive behind whose message the peer may still be writing; 0: none
	unread unread // as in
	opens  uint32 // open messages in comps

	head   uint32 // events taken
	events uint32 // events given
	sent   uint32 // messages sent
	posted uint32 // receives posted
	bytes  int    // of the arena in use

	armed   provider.Wake
	stands  atomic.Uint32 // armed, if nothing that it covers waits and nobody sits; stored with mu held
	muted   bool          // no wake-ups, for a moment
	cause   provider.Status
	disc    uint8
	started bool // the first message has come
	heldUrg bool
	over    bool // nothing shared is touched any more
	gone    bool // nor does the peer
	closed  bool
	early   bool // the peer has not heard of it, see DialEarly and AcceptEarly
	sits    bool // has the link's seat
	retired bool // what was shared has been given back

	expected bool // the link counts it among those that the peer has yet to end; guarded by the link's mu

	wake     func()
	waiter   spin.Waiter
	pausing  score // these two belong to the one who spins
	yielding pace
	roused   atomic.Bool // by Interrupt
	rise     func(uintptr) bool
	seen     uint32  // events taken when risen was called last
	attended uint32  // events taken when attend was called last
	stale    []block // to be given back when the peer is gone
	answer   chan error
	first    []byte // the message that travels with the request
	accepted bool

	// Never changed.
	l             *link
	id            uint32
	local, remote netip.AddrPort
}

func newEndpoint(l *link, local, remote netip.AddrPort) (*endpoint, error) {
	e := &endpoint{l: l, local: local, remote: remote}
	b, fresh, err := l.arena.alloc(inboxSize)
	if err != nil {
		return nil, err
	}
	if !fresh {
		clear(b.mem)
	}
	e.inBlk, e.in = b, view(b.mem)
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
	case e.over:
		return provider.StatusDisconnected
	}
	return provider.StatusOK
}

// PostRecv implements provider.Endpoint.
func (e *endpoint) PostRecv(r provider.Recv) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.refusal(); s != provider.StatusOK {
		return s
	}
	if e.posts[provider.OpRecv] >= maxRecvs {
		return provider.StatusQueueFull
	}
	i, off, ok := e.table.Local(&r.Buffer)
	if !ok {
		return provider.StatusLocal
	}
	s := &e.table.Slots[i]
	v := recv{ctx: r.Context, off: off, size: uint32(min(len(r.Buffer.Bytes), maxMessage)), slot: i}
	if s.Common {
		v.at = ptr(s.Place) + ptr(off)
	} else {
		b, err := e.alloc(int(v.size))
		if err != nil {
			return err
		}
		v.at, v.bounce = b.at, b.mem
	}
	s.Posted++
	e.posts[provider.OpRecv]++
	e.recvs.Push(v)
	published()
	e.in.descs[e.posted%slots].Store(packDesc(v.at, int(v.size), e.posted))
	e.posted++
	if e.held != nil {
		e.deliverHeld()
	}
	return nil
}

// alloc takes a block that counts for this connection. Called with mu held.
func (e *endpoint) alloc(n int) (block, error) {
	if e.bytes+n > e.l.node.connMemory {
		return block{}, provider.StatusLimit
	}
	b, _, err := e.l.arena.alloc(n)
	if err == nil {
		e.bytes += b.size
	}
	return b, err
}

// free gives a block back as soon as the peer does not use it any more. Called with mu held.
func (e *endpoint) free(b block) {
	e.bytes -= b.size
	if (e.over || e.holds(b)) && !e.gone {
		e.stale = append(e.stale, b)
		return
	}
	e.l.arena.release(b)
}

func bounced(r *recv) block { return block{r.at, rounded(len(r.bounce)), r.bounce} }

// common is the block of a registration from Allocate, all of which its Bytes have as their capacity.
func common(s *regtable.Slot) block {
	n := cap(s.Bytes)
	return block{ptr(s.Place), n, s.Bytes[:n]}
}

// PostSend implements provider.Endpoint.
func (e *endpoint) PostSend(s provider.Send) error {
	a, b := s.Inline[0], s.Inline[1]
	if s.Local.Bytes != nil {
		a, b = s.Local.Bytes, nil
	}
	n := len(a) + len(b)
	if n > maxMessage {
		return provider.StatusTooLong
	}
	var flag uint64
	if s.Solicited {
		flag = solicited
	}
	if s.Open {
		flag |= open
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		return e.refusal()
	}
	if s.Local.Bytes != nil {
		if e.posts[provider.OpSend] >= uint32(attributes.MaxSends) {
			return provider.StatusQueueFull
		}
		if _, _, ok := e.table.Local(&s.Local); !ok {
			return provider.StatusLocal
		}
	}
	if e.out.descs == nil {
		return e.sendEarly(&s)
	}
	w := e.out.descs[e.sent%slots].Load()
	observed()
	if w>>lapShift<<lapShift != lap(e.sent) {
		return e.sendUnposted(&s, a, b, flag)
	}
	p, size := unpackDesc(w)
	if n > size {
		e.emit(evTooLong, 0, n, flag&^open, true)
		e.sendFailed(&s, provider.StatusTooLong)
		return nil
	}
	room := n
	if s.Open {
		room = min(size, maxMessage)
	}
	dst, ok := e.l.theirs.at(p, room)
	if !ok {
		e.sendFailed(&s, provider.StatusLink)
		return nil
	}
	k := copy(dst, a)
	copy(dst[k:], b)
	e.sendInto(&s, dst, n, flag)
	return nil
}

// sendInto tells of a message that lies in the receive dst. Called with mu held.
func (e *endpoint) sendInto(s *provider.Send, dst []byte, n int, flag uint64) {
	e.sent++
	i := e.events
	e.emit(evMessage, 0, n, flag, s.Solicited)
	if s.Open {
		e.tail = tail{&e.out.events[i%slots], packEvent(evMessage, 0, n, flag, i), dst}
	}
	if s.Local.Bytes != nil {
		e.posts[provider.OpSend]++
		e.push(comp{ctx: s.Context, op: provider.OpSend})
	}
}

// sendUnposted sends a message to a peer that has no receive posted. Called with mu held.
func (e *endpoint) sendUnposted(s *provider.Send, a, b []byte, flag uint64) error {
	if e.sent != 0 || len(a)+len(b) > provider.MaxFirstMessage {
		e.sendFailed(s, provider.StatusNotReady)
		return nil
	}
	k := copy(e.out.held, a)
	copy(e.out.held[k:], b)
	e.sent++ // it takes the first receive, whenever that is posted
	e.emit(evHeld, 0, len(a)+len(b), flag&^open, s.Solicited)
	if s.Local.Bytes != nil {
		e.posts[provider.OpSend]++
		e.push(comp{ctx: s.Context, op: provider.OpSend})
	}
	return nil
}

// sendEarly keeps the message that will travel with the request. Before the peer has accepted there is no other. Called with mu
// held.
func (e *endpoint) sendEarly(s *provider.Send) error {
	n := len(s.Inline[0]) + len(s.Inline[1])
	if !e.early || e.sent != 0 || !s.IsInline() || n > provider.MaxFirstMessage {
		return provider.StatusNotReady
	}
	e.first = append(append(make([]byte, 0, n), s.Inline[0]...), s.Inline[1]...)
	e.sent++ // it takes the first receive
	return nil
}

// sendFailed reports a send that ends the connection, and ends it. Called with mu held.
func (e *endpoint) sendFailed(s *provider.Send, st provider.Status) {
	e.posts[provider.OpSend]++ // Poll takes it off again
	e.push(comp{ctx: s.Context, op: provider.OpSend, status: st, urgent: true})
	e.end(st)
}

// emit gives the peer an event. Called with mu held.
func (e *endpoint) emit(k kind, arg uint8, n int, flag uint64, urgent bool) {
	e.give(k, arg, n, flag)
	if k == evRequest {
		e.l.post(e.id) // the device works for it, whether or not anybody sleeps
		return
	}
	if e.early {
		return // the peer waits for evAccepted, which rings
	}
	// The event is stored before the peer's arming is loaded; the peer arms before it looks for events.
	w := e.out.arm.Load()
	mode := provider.Wake(w &^ seated)
	if (mode == provider.WakeAny || mode == provider.WakeSolicited && urgent) && e.out.arm.CompareAndSwap(w, 0) {
		e.ringFor(w)
	}
}

// give stores an event for the peer, who may not look for it. Called with mu held.
func (e *endpoint) give(k kind, arg uint8, n int, flag uint64) {
	e.tail.word = 0 // only the message sent last grows
	published()
	e.out.events[e.events%slots].Swap(packEvent(k, arg, n, flag, e.events)) // see words
	e.events++
}

// lockDrained takes mu and all that has arrived.
func (e *endpoint) lockDrained(t taker) {
	e.mu.Lock()
	e.drain(t)
}

// drain takes the events that have arrived. Called with mu held.
func (e *endpoint) drain(t taker) {
	for range slots {
		if e.over {
			return
		}
		slot := &e.in.events[e.head%slots]
		w := slot.Load()
		if !current(w, e.head) {
			return
		}
		if e.loose != 0 {
			e.tighten()
		}
		if w&open != 0 {
			w = e.shut(slot, t)
		}
		observed()
		if !current(w, e.head) || !e.event(w) {
			e.end(provider.StatusLink)
			return
		}
		e.head++
	}
}

// event acts on one event, and reports whether it made sense. Called with mu held.
func (e *endpoint) event(w uint64) bool {
	k, arg, n := unpackEvent(w)
	urgent := w&solicited != 0
	if e.l.dials && !e.accepted && k != evAccepted || w&open != 0 && k != evMessage { // to answer there is no inbox
		return false
	}
	switch k {
	case evMessage:
		if e.recvs.Len() == 0 {
			return false
		}
		r := e.recvs.Front()
		if n > r.size {
			return false
		}
		if r.bounce != nil {
			copy(e.table.Slots[r.slot].Bytes[r.off:], r.bounce[:n])
		}
		if w&open != 0 {
			e.loose = r.at
		}
		e.started = true
		e.received(n, provider.StatusOK, urgent, w&open != 0)
	case evHeld:
		if e.started || n > provider.MaxFirstMessage {
			return false
		}
		e.started = true
		e.held = append(make([]byte, 0, max(n, 1)), e.in.held[:n]...)
		e.heldUrg = urgent
		if e.recvs.Len() > 0 {
			e.deliverHeld()
		}
	case evTooLong:
		if e.recvs.Len() == 0 {
			return false
		}
		e.received(0, provider.StatusTooLong, true, false)
		e.end(provider.StatusTooLong)
	case evRequest:
		return arg < maxRDMAs && e.serve(arg)
	case evAnswer:
		return arg < maxRDMAs && e.reqs != nil && e.answered(arg, n)
	case evAccepted:
		return e.l.dials && !e.early && !e.accepted && e.head == 0 && e.welcomed(ptr(n)*grain)
	case evFin:
		e.end(causeOf(provider.Status(n)))
		e.gone = true
		e.retire()
	default:
		return false
	}
	return true
}

// received completes the first receive, grown with a message that was open. Called with mu held.
func (e *endpoint) received(n uint32, st provider.Status, urgent, grown bool) {
	r := e.recvs.Front()
	if r.bounce != nil {
		e.free(bounced(r))
	}
	e.table.Slots[r.slot].Posted--
	c := comp{ctx: r.ctx, n: n, op: provider.OpRecv, status: st, urgent: urgent, open: grown}
	if grown {
		e.opens++
	}
	e.recvs.Drop()
	e.push(c)
}

// deliverHeld moves the first message into the first receive. Called with mu held.
func (e *endpoint) deliverHeld() {
	m := e.held
	e.held = nil
	r := e.recvs.Front()
	if len(m) > int(r.size) {
		e.received(0, provider.StatusTooLong, true, false)
		e.end(provider.StatusTooLong)
		return
	}
	copy(e.table.Slots[r.slot].Bytes[r.off:], m)
	e.received(uint32(len(m)), provider.StatusOK, e.heldUrg, false)
}

// push reports a completion. Called with mu held.
func (e *endpoint) push(c comp) {
	e.comps.Push(c)
	if c.urgent {
		e.urgent++
	}
	e.rouse(c.urgent)
}

// rouse uses up the arming if a completion is covered by it. Called with mu held.
func (e *endpoint) rouse(urgent bool) {
	if e.muted || e.armed != provider.WakeAny && (e.armed != provider.WakeSolicited || !urgent) {
		return
	}
	e.disarm()
	if !e.over {
		e.in.arm.Store(0)
	}
	if e.wake != nil {
		e.wake()
	}
}

// disarm notes that the arming is used up. Called with mu held.
func (e *endpoint) disarm() {
	e.armed = 0
	e.stands.Store(0)
}

// Poll implements provider.Endpoint.
func (e *endpoint) Poll(c []provider.Completion) int {
	n := 0
	e.lockDrained(poller)
	for n < len(c) && e.comps.Len() > 0 {
		p := e.comps.Front()
		c[n] = provider.Completion{Context: p.ctx, Op: p.op, Status: p.status, Len: int(p.n)}
		n++
		e.posts[p.op]--
		if p.urgent {
			e.urgent--
		}
		if p.open {
			e.opens--
		}
		e.comps.Skip()
	}
	e.polled()
	if e.over && n < len(c) {
		n += e.pollEnd(c[n:])
	}
	e.mu.Unlock()
	return n
}

// pollEnd reports what the end of the connection left: operations cut short, then the end itself. Called with mu held.
func (e *endpoint) pollEnd(c []provider.Completion) (n int) {
	for ; n < len(c) && e.recvs.Len() > 0; n++ {
		r := e.recvs.Front()
		c[n] = provider.Completion{Context: r.ctx, Op: provider.OpRecv, Status: provider.StatusAborted}
		e.posts[provider.OpRecv]--
		e.recvs.Drop()
	}
	for i := 0; e.reqs != nil && n < len(c) && i < maxRDMAs; i++ {
		if q := &e.reqs[i]; q.op != 0 {
			c[n] = provider.Completion{Context: q.ctx, Op: q.op, Status: provider.StatusAborted}
			e.posts[q.op]--
			q.op = 0
			n++
		}
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
	e.mu.Lock()
	e.wake = wake
	e.mu.Unlock()
}

// Arm implements provider.Endpoint.
func (e *endpoint) Arm(w provider.Wake) (ready bool) {
	if w != 0 && e.stands.Load() == uint32(w) {
		return false // what has arrived since will wake, or has, as it would if it came now
	}
	e.mu.Lock()
	e.stands.Store(0)
	e.muted = true // what it finds it reports
	if !e.closed {
		e.armed = w
		if word := e.arming(); !e.over && e.in.arm.Load() != word {
			e.in.arm.Swap(word) // see words
		}
	}
	e.drain(device)
	ready = e.waiting(w)
	e.muted = false
	if !ready && !e.sits {
		e.stands.Store(uint32(e.armed))
	}
	e.mu.Unlock()
	return ready
}

// arming is the word that tells the peer when to ring, and where. Called with mu held.
func (e *endpoint) arming() uint64 {
	w := uint64(e.armed)
	if e.sits {
		w |= seated
	}
	return w
}

// waiting reports whether Poll would return something that w covers. Called with mu held.
func (e *endpoint) waiting(w provider.Wake) bool {
	if w != provider.WakeAny && w != provider.WakeSolicited {
		return false
	}
	if e.over && (e.recvs.Len() > 0 || e.disc == discPending || e.stuck()) {
		return true
	}
	return e.urgent > 0 || w == provider.WakeAny && e.comps.Len() > 0
}

func (e *endpoint) stuck() bool {
	for i := 0; e.reqs != nil && i < maxRDMAs; i++ {
		if e.reqs[i].op != 0 {
			return true
		}
	}
	return false
}

// attend is what the doorbell leads to: the device's own work, and a wake-up if that is due. Whatever the peer has
// done with the word by which we are armed, ours is the one that counts. It reports whether anything has come since it was called
// last, perhaps taken by others already: an honest peer marks a connection after an event.
func (e *endpoint) attend() (news bool) {
	e.lockDrained(device)
	e.seek()
	if e.armed != 0 && e.waiting(e.armed) {
		e.rouse(true)
	} else if e.armed != 0 && !e.over {
		e.in.arm.Swap(e.arming()) // see words
		e.drain(device)
	}
	news = e.gone || e.head != e.attended
	e.attended = e.head
	e.mu.Unlock()
	return news
}

// end ends the connection here, for a reason that the peer hears, too. From here on nothing shared is
// touched. Called with mu held.
func (e *endpoint) end(cause provider.Status) {
	if e.over {
		return
	}
	e.over = true
	e.held = nil
	e.cause = cause
	if !e.closed {
		e.disc = discPending
	}
	for i := range e.recvs.Len() {
		r := e.recvs.At(i)
		e.table.Slots[r.slot].Posted--
		if r.bounce != nil {
			e.free(bounced(r))
			r.bounce = nil
		}
	}
	for i := 0; e.reqs != nil && i < maxRDMAs; i++ {
		if q := &e.reqs[i]; q.op != 0 {
			if q.slot != regtable.None {
				e.table.Slots[q.slot].Posted--
			}
			e.free(q.stage)
			q.stage, q.local = block{}, nil
		}
	}
	e.rouse(true)
	if e.sits {
		e.Interrupt() // also if it is not armed, as in Close
	}
	e.tell(cause)
	e.retire()
}

// retire gives back what was shared, when neither side touches it any more. Called with mu held.
func (e *endpoint) retire() {
	if !e.over || !e.gone || e.retired {
		return
	}
	e.retired = true
	for _, b := range e.stale {
		e.l.arena.release(b)
	}
	e.stale = nil
	e.l.arena.release(e.inBlk)
	e.in, e.out, e.inBlk = inbox{}, inbox{}, block{}
	if !e.early { // else it is in no list
		e.l.forget(e)
	}
}

// left is called when the peer does not touch anything any more: it has ended the connection, or is dead, which is
// StatusExited.
func (e *endpoint) left(cause provider.Status) {
	e.mu.Lock()
	e.drain(device) // what had arrived before
	if cause == provider.StatusExited && !e.over {
		cause = e.will()
	}
	e.end(cause)
	e.gone = true
	e.retire()
	e.mu.Unlock()
}

// Close implements provider.Endpoint.
func (e *endpoint) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.waiter.Forget()
	e.disarm()
	e.closed = true
	e.drain(device)
	e.end(provider.StatusDisconnected)
	for i := range e.table.Slots {
		if s := &e.table.Slots[i]; s.State == regtable.Live {
			s.Rights = 0
			if !s.Common {
				s.Bytes = nil
			}
		}
	}
	return nil
}

// Allocate implements provider.Endpoint.
func (e *endpoint) Allocate(size int) (provider.Region, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.refusal(); s != provider.StatusOK {
		return provider.Region{}, s
	}
	if size < 0 || size > maxBlock {
		return provider.Region{}, provider.StatusNoMemory
	}
	if e.bytes+size > e.l.node.connMemory || e.l.arena.full(size) {
		return provider.Region{}, provider.StatusLimit
	}
	b, fresh, err := e.l.arena.alloc(size)
	if err != nil {
		return provider.Region{}, err
	}
	if !fresh {
		clear(b.mem)
	}
	i, r, ok := e.table.Add(b.mem[:size], 0)
	if !ok {
		e.l.arena.release(b)
		return r, provider.StatusLimit
	}
	s := &e.table.Slots[i]
	s.Common, s.Place = true, uint64(b.at)
	r.Bytes = r.Bytes[:size:size]
	e.bytes += b.size
	return r, nil
}

// Register implements provider.Endpoint.
func (e *endpoint) Register(b []byte) (provider.Region, error) { return e.register(b, 0) }

// Expose implements provider.Endpoint.
func (e *endpoint) Expose(b []byte, rights provider.Rights) (provider.Region, error) {
	if rights == 0 || rights&^(provider.RightRead|provider.RightWrite) != 0 {
		return provider.Region{}, provider.StatusUnsupported
	}
	return e.register(b, rights)
}

func (e *endpoint) register(b []byte, rights provider.Rights) (provider.Region, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return provider.Region{}, provider.StatusClosed
	}
	_, r, ok := e.table.Add(b, rights)
	if !ok {
		return r, provider.StatusLimit
	}
	return r, nil
}

// Deregister implements provider.Endpoint. The peer's accesses are made by this process with mu held, so none is under way.
func (e *endpoint) Deregister(h provider.Handle) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := e.table.Find(h)
	if i == regtable.None {
		return provider.StatusAccess
	}
	s := &e.table.Slots[i]
	if s.Posted != 0 {
		return provider.StatusBusy
	}
	if s.Common {
		e.free(common(s))
	}
	e.table.Remove(i)
	return nil
}
