package session

import (
	"slices"

	"sansock/provider"
	"sansock/session/regcache"
)

// line is one endpoint of the provider's, and what belongs to it alone: the receives that are posted there, and what
// may be sent. It knows what a message costs and not what it means. A hand-over replaces it.
type line struct {
	ep         provider.Endpoint
	attr       provider.Attributes
	reader     provider.RDMAReader // nil: no RDMA read here
	appender   provider.Appender   // nil: messages do not grow
	peerReader bool                // the peer can RDMA-read
	features   uint32              // those that both ends have
	offers     uint32              // those of this end

	state lineState
	fault error // what the provider failed with; nil: it did not

	// fast: there is nothing to look after but the bytes of the stream. Reads and Writes then leave everything else
	// out. Whatever happens besides clears it. Conn.settle sets it, where core.canFast.
	fast bool

	received, sent uint64 // messages

	rx
	tx

	regs  *regcache.Cache // local registrations of the application's memory; nil before the first
	cache regcache.Limits
	cq    [8]provider.Completion
}

// lineState says what may leave.
type lineState uint8

const (
	lineUp     lineState = iota // everything
	linePaused                  // nothing of the stream, for a hand-over
	lineQuiet                   // credits alone: the peer is about to go
	lineShut                    // nothing any more; what arrives is still taken
	lineEnded                   // nothing comes either: OpDisconnect, or Close
)

// rx is the receiving half of a line.
type rx struct {
	recv        [2]receives // one in use, the other retired or empty
	cur         int         // the one in use
	announced   bool        // the peer knows of it
	levels      []level
	level       int  // of the one in use
	sinceGrow   int  // bytes received at this level
	growAt      int  // growing failed: to be tried again after so many bytes at this level
	ungranted   int  // buffers posted again for which the peer has no credit yet
	replenish   bool // a control message may have used one of the peer's last credits
	lent        int  // receive buffers in the hands of the application
	shrinking   bool // the region is to become small, as soon as that is possible
	peerBlocked bool // a Write of the peer's waits for these buffers
	unread      bool // the provider has been told that there is unread data
}

// tx is the sending half of a line.
type tx struct {
	win      window
	send     sends
	late     *provider.Send // a message that the provider had no room for; usually nil
	inFlight int            // sends posted from registered memory, not completed
	buffer   bufferState
	open     bool // the last message may still grow
	scratch  [headerSize + offerSize]byte
}

// bufferState is that of a Buffer of the application's which is sent as a message.
type bufferState uint8

const (
	bufferNone bufferState = iota
	bufferOut              // posted
	bufferDone             // the memory may be used again
)

// Contexts of sends that have no slot; the others have its number.
const (
	bufferContext = 1 << 32 // a Buffer's memory
	inlineContext = 2 << 32 // completes only if it fails
)

// controlSize bounds a control message.
const controlSize = headerSize + offerSize

func newLine(ep provider.Endpoint, a provider.Attributes) line {
	l := line{ep: ep, attr: a, offers: features, rx: rx{levels: levels(a), announced: true}}
	l.appender = extension[provider.Appender](ep, provider.GUIDAppender)
	if a.MaxRDMAs > 1 { // else a read of ours might find a write in its place
		l.reader = extension[provider.RDMAReader](ep, provider.GUIDRDMARead)
	}
	return l
}

// extension returns the extension of the endpoint, nil if there is none.
func extension[T any](ep provider.Endpoint, id provider.GUID) (t T) {
	if x, err := ep.Extension(id); err == nil {
		t, _ = x.(T)
	}
	return t
}

// slotFree reports that a control message has memory to leave from.
func (l *line) slotFree() bool {
	return (l.attr.MaxInline >= controlSize || len(l.send.free) > 0) && l.late == nil
}

// canControl reports that a control message may be sent now.
func (l *line) canControl() bool {
	return l.state <= linePaused && l.win.control() && l.slotFree()
}

// canCredit reports that a message which returns credits may be sent now.
func (l *line) canCredit() bool { return l.state < lineShut && l.win.credits > 0 && l.slotFree() }

// canData reports that stream bytes may be sent now. One slot of the send region is left to control messages. A region
// that is to be replaced takes no more data, so that it becomes idle.
func (l *line) canData() bool {
	return l.state == lineUp && l.win.data() && l.late == nil &&
		(l.attr.MaxInline >= min(l.win.size(), l.send.size) || len(l.send.free) > 1 && l.send.want == 0)
}

// roomFor reports that a control message with a payload of n bytes has memory to leave from.
func (l *line) roomFor(n int) bool {
	return headerSize+n <= l.attr.MaxInline || len(l.send.free) > 0
}

// payload is how many bytes the next message may carry behind its header.
func (l *line) payload() int {
	return min(l.win.size(), max(l.attr.MaxInline, l.send.size)) - headerSize
}

// grant takes the credits that are to go with the next message.
func (l *line) grant() uint16 {
	n := l.ungranted
	l.ungranted, l.replenish = 0, false
	return uint16(n)
}

// post sends one message: the header, fixed bytes which the caller has put behind it in scratch, and body. The caller
// has made sure of the credit, and of a slot.
func (l *line) post(k kind, flags uint8, arg uint64, fixed int, body []byte, solicited bool) {
	l.emit(header{kind: k, flags: flags, credits: l.grant(), arg: arg}, fixed, body, solicited)
}

// postData sends bytes of the stream, likewise. Where the provider can do that, the message stays open.
func (l *line) postData(body []byte, flags uint8) {
	open := l.appender != nil && l.features&featureOpen != 0
	if open {
		flags |= flagOpen
	}
	l.emit(header{kind: kindData, flags: flags, credits: l.grant()}, 0, body, false)
	l.open = open && l.late == nil
}

// postResize announces the receive region in use.
func (l *line) postResize(flags uint8) {
	r := &l.recv[l.cur]
	h := header{kind: kindResize, flags: flags, arg: uint64(r.size) | uint64(l.ungranted)<<32, credits: uint16(r.count)}
	l.grant()
	l.announced = true
	l.emit(h, 0, nil, true)
}

// emit sends h and what follows it.
func (l *line) emit(h header, fixed int, body []byte, solicited bool) {
	h.length = uint32(fixed + len(body))
	l.win.use()
	// What leaves too little for a control message wakes the peer, which may have to replenish it, see window.go.
	s := provider.Send{
		Context:   inlineContext,
		Solicited: solicited || !l.win.control(),
		Open:      h.flags&flagOpen != 0,
	}
	n := headerSize + fixed
	h.put(l.scratch[:])
	if n+len(body) <= l.attr.MaxInline {
		s.Inline = [2][]byte{l.scratch[:n], body}
	} else {
		slot := l.send.free[len(l.send.free)-1]
		l.send.free = l.send.free[:len(l.send.free)-1]
		s.Context = uint64(slot)
		s.Local = l.send.region.Segment(slot*l.send.size, n+len(body))
		copy(s.Local.Bytes, l.scratch[:n])
		copy(s.Local.Bytes[n:], body)
		l.inFlight++
	}
	l.open = false
	l.postSend(s)
}

// extend adds p to the last message, if that is possible.
func (l *line) extend(p []byte) bool {
	if l.open && l.appender.Append(p) {
		return true
	}
	l.open = false
	return false
}

// postSend posts a message whose slot, if it has one, is in flight.
func (l *line) postSend(s provider.Send) {
	if err := l.ep.PostSend(s); err == nil {
		l.sent++
	} else {
		l.notSent(s, err)
	}
}

// notSent acts on the error of a post.
func (l *line) notSent(s provider.Send, err error) {
	if provider.StatusOf(err) == provider.StatusQueueFull {
		l.postpone(s)
		return
	}
	l.sendDone(s.Context) // there will be no completion
	l.sendFailed(err)
}

// postpone keeps a message for which the provider has no room at the moment. No other leaves before it: whether one
// can, all ask slotFree or canData.
func (l *line) postpone(s provider.Send) {
	if s.IsInline() {
		s.Inline = [2][]byte{slices.Concat(s.Inline[0], s.Inline[1]), nil}
	}
	l.late, l.fast = &s, false
}

// postLate tries again what was postponed, and reports that nothing is left of that.
func (l *line) postLate() bool {
	if l.late == nil {
		return true
	}
	s := *l.late
	l.late = nil
	l.postSend(s)
	return l.late == nil
}

// dropLate gives up what was postponed, after the end.
func (l *line) dropLate() {
	if l.late != nil {
		l.sendDone(l.late.Context)
		l.late = nil
	}
}

// sendFailed acts on an error of a post: nothing leaves any more. A peer that is gone is not noted before what it sent
// has been received.
func (l *line) sendFailed(err error) {
	l.fast = false
	if l.state != lineQuiet { // there the peer may have gone, as it was to
		l.shut()
		l.failed(err)
	}
}

// failed notes that the provider has failed, for core.noteFault. Of the end of the connection OpDisconnect tells.
func (l *line) failed(err error) {
	l.fast = false
	s := provider.StatusOf(err)
	if s != provider.StatusDisconnected && s != provider.StatusClosed && l.fault == nil {
		l.fault = err
	}
}

// sound reports that the line stands, and the provider has not failed.
func (l *line) sound() bool { return l.state != lineEnded && l.fault == nil }

// shut lets nothing leave any more.
func (l *line) shut() { l.state = max(l.state, lineShut) }

// sendDone takes the memory of a message back.
func (l *line) sendDone(context uint64) {
	switch context {
	case inlineContext:
		return
	case bufferContext:
		l.buffer = bufferDone
	default:
		l.send.free = append(l.send.free, int(context))
		l.resizeSends()
	}
	l.inFlight--
}

// postBuffer sends the n bytes behind the head room of a registered region as one message, straight from there.
// It reports whether that was possible. The memory is in use until buffer is bufferDone.
func (l *line) postBuffer(r provider.Region, n int) bool {
	if headerSize+n > l.win.size() || headerSize+n <= l.attr.MaxInline || !l.win.data() ||
		l.state != lineUp || l.late != nil || l.inFlight >= l.attr.MaxSends-1 {
		return false
	}
	header{kind: kindData, credits: l.grant(), length: uint32(n)}.put(r.Bytes)
	l.win.use()
	l.inFlight++
	l.buffer, l.open = bufferOut, false
	l.postSend(provider.Send{Context: bufferContext, Local: r.Segment(0, headerSize+n)})
	if l.fault != nil || l.state != lineUp {
		l.buffer = bufferNone
		return false
	}
	return true
}

// repost gives a receive buffer to the provider again. The credit for it goes out with the next message.
func (l *line) repost(gen, slot int) {
	r := &l.recv[gen]
	if r.retired || l.state == lineEnded {
		r.release(l.ep)
		return
	}
	p := provider.Recv{Context: recvContext(gen, slot), Buffer: r.segment(slot)}
	if err := l.ep.PostRecv(p); err != nil {
		l.failed(err)
		return
	}
	r.posted++
	l.ungranted++
}

// creditIfDue returns credits in a message of their own when half of the buffers is ungranted. Those that the
// application keeps count as well, as the peer may wait for credits with just half of them out.
func (l *line) creditIfDue() {
	due := l.ungranted > 1 && l.ungranted+l.lent >= l.recv[l.cur].count/2
	granted := l.recv[l.cur^1].posted - l.ungranted // what the peer has
	if l.announced {
		granted += l.recv[l.cur].posted
	}
	low := l.replenish && l.ungranted > 0 && granted < controlReserve
	if (due || low) && l.canCredit() {
		l.post(kindCredit, 0, 0, 0, nil, low)
	}
}

// resizeSends replaces the region of outgoing messages, where that is wanted, as soon as none is on its way.
func (l *line) resizeSends() {
	if l.send.want == 0 || !l.send.idle() {
		return
	}
	if l.send.want > l.attr.MaxInline && l.attr.MaxSends >= minSends {
		// Without memory, or where one message at a time could leave from it, they just stay smaller.
		l.send.open(l.ep, min(busyReceives, l.attr.MaxSends), l.send.want)
	} else {
		l.send.close(l.ep)
	}
	l.send.want = 0
}

// close gives back what the line holds, when its endpoint is closed. What is lent stays until it is returned.
func (l *line) close() {
	if l.regs != nil {
		l.regs.Close()
		l.regs = nil
	}
	l.send.close(l.ep)
	for i := range l.recv {
		r := &l.recv[i]
		r.retired, r.posted = true, 0
		r.release(l.ep)
	}
}
