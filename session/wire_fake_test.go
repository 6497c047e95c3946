package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"sansock/provider"
)

// fakeWire connects two endpoints without goroutines or clocks: what one posts waits in the wire until deliver is
// called. It checks the rules that a session owes its provider, and it can fail at any step.
type fakeWire struct {
	ends   [2]*fakeEnd
	faults func(step string) provider.Status // StatusOK: none
	broken []string                          // rules that were broken by the session
}

// fakeEnd is one endpoint of a fakeWire.
type fakeEnd struct {
	w      *fakeWire
	peer   *fakeEnd
	attr   provider.Attributes
	recvs  []provider.Recv
	out    []fakeMsg // sent, not delivered
	cq     []provider.Completion
	regs   map[provider.Handle]*fakeReg
	next   provider.Handle
	wake   func()
	armed  provider.Wake
	closed bool // by this side
	gone   bool // by the other
	inUse  map[provider.Handle]int
	tap    func(b []byte)    // takes the messages that arrive instead of receives
	onArm  func()            // something happens just before Arm
	unread bool              // as the session has said
	kept   []provider.Handle // which a fault kept from being deregistered
}

type fakeReg struct {
	b      []byte
	rights provider.Rights
}

// fakeMsg is something on its way: a message, an RDMA operation, or the end.
type fakeMsg struct {
	data []byte
	op   provider.Op
	rdma provider.RDMA
	ctx  uint64
	free bool // data is inline: no completion
	open bool // it may be appended to
	soli bool
}

func newFakeWire(a, b provider.Attributes) *fakeWire {
	w := &fakeWire{}
	for i, attr := range []provider.Attributes{a, b} {
		w.ends[i] = &fakeEnd{w: w, attr: attr, regs: map[provider.Handle]*fakeReg{}, inUse: map[provider.Handle]int{}}
	}
	w.ends[0].peer, w.ends[1].peer = w.ends[1], w.ends[0]
	return w
}

// fakeAttr are attributes like those of the emulator.
func fakeAttr() provider.Attributes {
	return provider.Attributes{MaxMessage: 1 << 20, MaxRDMA: 1 << 30, RDMAThreshold: 16 << 10, MaxInline: 1 << 20,
		MaxRecvs: 4096, MaxSends: 4096, MaxRDMAs: 16, RDMARead: true, RDMAReadable: true, Buffered: 128 << 10}
}

func (w *fakeWire) fault(step string) provider.Status {
	if w.faults == nil {
		return provider.StatusOK
	}
	return w.faults(step)
}

func (w *fakeWire) rule(format string, args ...any) {
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
}

func (e *fakeEnd) complete(c provider.Completion, solicited bool) {
	e.cq = append(e.cq, c)
	if e.armed == provider.WakeAny || e.armed == provider.WakeSolicited && (solicited || c.Status != provider.StatusOK) {
		e.armed = provider.WakeNone
		if e.wake != nil {
			e.wake()
		}
	}
}

// deliver moves one thing from this end to the other and reports whether there was one.
func (e *fakeEnd) deliver() bool {
	if len(e.out) == 0 {
		return false
	}
	m := e.out[0]
	e.out = e.out[1:]
	switch m.op {
	case provider.OpSend:
		if e.peer.closed || e.peer.gone {
			return true
		}
		if e.peer.tap != nil {
			e.peer.tap(m.data)
		} else if len(e.peer.recvs) == 0 {
			e.w.rule("message without a posted receive")
			return true
		} else {
			r := e.peer.recvs[0]
			e.peer.recvs = e.peer.recvs[1:]
			if len(m.data) > len(r.Buffer.Bytes) {
				e.w.rule("message of %d bytes for a receive of %d", len(m.data), len(r.Buffer.Bytes))
			}
			e.peer.complete(provider.Completion{Context: r.Context, Op: provider.OpRecv, Len: copy(r.Buffer.Bytes, m.data)}, m.soli)
		}
		if !m.free && !e.closed {
			e.complete(provider.Completion{Context: m.ctx, Op: provider.OpSend}, false)
		}
	case provider.OpRead, provider.OpWrite:
		s := provider.StatusOK
		right := provider.RightRead
		if m.op == provider.OpWrite {
			right = provider.RightWrite
		}
		remote := e.peer.regs[provider.Handle(binary.LittleEndian.Uint64(m.rdma.Remote[:]))]
		n := uint64(len(m.rdma.Local.Bytes))
		if e.closed {
			return true
		}
		if e.peer.closed || e.peer.gone {
			s = provider.StatusDisconnected
		} else if remote == nil || remote.rights&right == 0 || m.rdma.Offset > uint64(len(remote.b)) || n > uint64(len(remote.b))-m.rdma.Offset {
			s = provider.StatusAccess
			e.w.rule("refused RDMA")
		} else if m.op == provider.OpRead {
			copy(m.rdma.Local.Bytes, remote.b[m.rdma.Offset:])
		} else {
			copy(remote.b[m.rdma.Offset:], m.rdma.Local.Bytes)
		}
		if h := m.rdma.Local.Handle; h != 0 {
			e.inUse[h]--
		}
		if f := e.w.fault("rdma"); f != provider.StatusOK {
			s = f
		}
		e.complete(provider.Completion{Context: m.ctx, Op: m.op, Status: s}, true)
	case provider.OpDisconnect:
		e.peer.disconnect()
	}
	return true
}

func (e *fakeEnd) disconnect() {
	if e.closed || e.gone {
		return
	}
	e.gone = true
	e.flush()
	e.complete(provider.Completion{Op: provider.OpDisconnect}, true)
}

// exit ends the connection as the end of the peer's process does.
func (e *fakeEnd) exit(s provider.Status) {
	e.gone = true
	e.flush()
	e.complete(provider.Completion{Op: provider.OpDisconnect, Status: s}, true)
}

// flush completes everything posted as aborted.
func (e *fakeEnd) flush() {
	for _, m := range e.out {
		if m.op != provider.OpDisconnect && !m.free {
			e.complete(provider.Completion{Context: m.ctx, Op: m.op, Status: provider.StatusAborted}, true)
		}
	}
	e.out = nil
	for _, r := range e.recvs {
		e.complete(provider.Completion{Context: r.Context, Op: provider.OpRecv, Status: provider.StatusAborted}, true)
	}
	e.recvs = nil
	clear(e.inUse)
}

func (e *fakeEnd) state() error {
	switch {
	case e.closed:
		return provider.StatusClosed
	case e.gone:
		return provider.StatusDisconnected
	}
	return nil
}

func (e *fakeEnd) local(s provider.Segment) bool {
	if s.Handle == 0 {
		return !e.attr.LocalRegistration
	}
	return e.regs[s.Handle] != nil
}

func (e *fakeEnd) Attributes() provider.Attributes { return e.attr }
func (e *fakeEnd) LocalAddr() netip.AddrPort       { return netip.AddrPort{} }
func (e *fakeEnd) RemoteAddr() netip.AddrPort      { return netip.AddrPort{} }
func (e *fakeEnd) OnWake(f func())                 { e.wake = f }

func (e *fakeEnd) reg(step string, b []byte, rights provider.Rights) (provider.Region, error) {
	if s := e.w.fault(step); s != provider.StatusOK {
		return provider.Region{}, s
	}
	if e.closed {
		return provider.Region{}, provider.StatusClosed
	}
	e.next++
	e.regs[e.next] = &fakeReg{b, rights}
	r := provider.Region{Bytes: b, Handle: e.next}
	if rights != 0 {
		binary.LittleEndian.PutUint64(r.Descriptor[:], uint64(e.next))
	}
	return r, nil
}

func (e *fakeEnd) Allocate(n int) (provider.Region, error) {
	return e.reg("allocate", make([]byte, n), 0)
}
func (e *fakeEnd) Register(b []byte) (provider.Region, error) {
	return e.reg("register", b, 0)
}
func (e *fakeEnd) Expose(b []byte, r provider.Rights) (provider.Region, error) {
	if r&provider.RightRead != 0 && !e.attr.RDMAReadable {
		e.w.rule("exposed for reading")
	}
	return e.reg("expose", b, r)
}

func (e *fakeEnd) Deregister(h provider.Handle) error {
	if e.regs[h] == nil {
		e.w.rule("deregistered unknown memory")
		return provider.StatusAccess
	}
	if s := e.w.fault("deregister"); s != provider.StatusOK && !e.closed {
		e.kept = append(e.kept, h)
		return s
	}
	if e.inUse[h] > 0 {
		e.w.rule("deregistered memory in use")
		return provider.StatusBusy
	}
	for _, r := range e.recvs {
		if r.Buffer.Handle == h {
			e.w.rule("deregistered posted receives")
		}
	}
	delete(e.regs, h)
	return nil
}

func (e *fakeEnd) PostRecv(r provider.Recv) error {
	if err := e.state(); err != nil {
		return err
	}
	if s := e.w.fault("post-recv"); s != provider.StatusOK {
		return s
	}
	if len(e.recvs) >= e.attr.MaxRecvs {
		e.w.rule("too many receives")
		return provider.StatusQueueFull
	}
	if e.regs[r.Buffer.Handle] == nil {
		e.w.rule("receive into unregistered memory")
	}
	e.recvs = append(e.recvs, r)
	return nil
}

func (e *fakeEnd) PostSend(s provider.Send) error {
	if err := e.state(); err != nil {
		return err
	}
	if f := e.w.fault("post-send"); f != provider.StatusOK {
		return f
	}
	m := fakeMsg{op: provider.OpSend, ctx: s.Context, soli: s.Solicited, open: s.Open}
	if m.free = s.IsInline(); m.free {
		m.data = append(append(m.data, s.Inline[0]...), s.Inline[1]...)
		if len(m.data) > e.attr.MaxInline {
			e.w.rule("inline message of %d bytes", len(m.data))
		}
	} else {
		if !e.local(s.Local) || s.Local.Handle == 0 {
			e.w.rule("send from unregistered memory")
		}
		m.data = append(m.data, s.Local.Bytes...)
	}
	if len(m.data) > e.attr.MaxMessage {
		e.w.rule("message of %d bytes", len(m.data))
	}
	e.out = append(e.out, m)
	return nil
}

// Append implements provider.Appender: a message is taken when it is delivered.
func (e *fakeEnd) Append(p []byte) bool {
	n := len(e.out)
	if n == 0 || e.state() != nil || !e.out[n-1].open || !e.out[n-1].free {
		return false
	}
	i := -1 // the receive that the message will take
	for _, m := range e.out {
		if m.op == provider.OpSend {
			i++
		}
	}
	m := &e.out[n-1]
	if i >= len(e.peer.recvs) || len(m.data)+len(p) > len(e.peer.recvs[i].Buffer.Bytes) {
		return false
	}
	m.data = append(m.data, p...)
	return true
}

// Unread implements provider.Appender.
func (e *fakeEnd) Unread(unread bool) { e.unread = unread }

func (e *fakeEnd) post(op provider.Op, r provider.RDMA) error {
	if err := e.state(); err != nil {
		return err
	}
	if s := e.w.fault("post-rdma"); s != provider.StatusOK {
		return s
	}
	if len(r.Local.Bytes) > e.attr.MaxRDMA || len(r.Local.Bytes) == 0 {
		e.w.rule("RDMA of %d bytes", len(r.Local.Bytes))
	}
	if !e.local(r.Local) {
		e.w.rule("RDMA with unregistered memory")
	}
	if r.Local.Handle != 0 {
		e.inUse[r.Local.Handle]++
	}
	e.out = append(e.out, fakeMsg{op: op, rdma: r, ctx: r.Context})
	return nil
}

func (e *fakeEnd) PostWrite(r provider.RDMA) error { return e.post(provider.OpWrite, r) }
func (e *fakeEnd) PostRead(r provider.RDMA) error  { return e.post(provider.OpRead, r) }

func (e *fakeEnd) Poll(c []provider.Completion) int {
	n := copy(c, e.cq)
	e.cq = e.cq[n:]
	return n
}

func (e *fakeEnd) Arm(w provider.Wake) bool {
	if e.onArm != nil {
		e.onArm()
	}
	e.armed = w
	return len(e.cq) > 0
}

func (e *fakeEnd) Extension(id provider.GUID) (any, error) {
	switch {
	case id == provider.GUIDRDMARead && e.attr.RDMARead:
		return provider.RDMAReader(e), nil
	case id == provider.GUIDAppender && e.attr.MaxInline > 0 && e.attr.MaxRecvs > 100:
		return provider.Appender(e), nil
	}
	return nil, errors.ErrUnsupported
}

func (e *fakeEnd) Close() error {
	if e.closed {
		return nil
	}
	// What was sent reaches the peer first, as the wire keeps the order, up to the first operation that is cut short.
	var out []fakeMsg
	cut := false
	for _, m := range e.out {
		if m.op == provider.OpSend && m.free {
			if !cut {
				out = append(out, m)
			}
		} else {
			cut = true
			e.complete(provider.Completion{Context: m.ctx, Op: m.op, Status: provider.StatusAborted}, true)
		}
	}
	e.out = nil
	e.flush()
	e.closed = true
	for _, h := range e.kept {
		delete(e.regs, h) // Close is what ends these
	}
	e.armed = provider.WakeNone
	if !e.gone {
		e.out = append(out, fakeMsg{op: provider.OpDisconnect})
	}
	return nil
}

// leaks is what the session left registered.
func (e *fakeEnd) leaks() int { return len(e.regs) }

// fakeRand makes runs repeatable.
func fakeRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed)) }
