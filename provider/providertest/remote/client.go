package remote

import (
	"context"
	"encoding/gob"
	"io"
	"net/netip"
	"sync"

	"sansock/provider"
)

// Provider is a provider in another process. It implements provider.Provider, with two exceptions: what Allocate
// returns stands for memory that is in the other process and cannot be seen from here, and operations allocate.
type Provider struct {
	mem  []byte
	name string
	attr provider.Attributes

	wmu sync.Mutex // held while a message is written; a leaf
	out *gob.Encoder

	mu     sync.Mutex // a leaf
	calls  map[uint64]chan *message
	wakes  map[uint64]func() // by endpoint
	next   uint64
	used   int  // of mem
	failed bool // there are no more answers
}

// New returns the provider that is served at the other end of conn, and may register memory in mem, which both have. It
// works until the caller closes conn.
func New(conn io.ReadWriter, mem []byte) (*Provider, error) {
	p := &Provider{
		mem: mem, out: gob.NewEncoder(conn), calls: make(map[uint64]chan *message), wakes: make(map[uint64]func()),
	}
	go p.read(conn)
	a := p.do(&message{Call: callOpen})
	p.name, p.attr = a.Name, a.Attributes
	return p, a.Failure.err()
}

// Memory returns n bytes of the shared memory that were not returned before, nil if there are no more.
func (p *Provider) Memory(n int) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > len(p.mem)-p.used {
		return nil
	}
	b := p.mem[p.used : p.used+n : p.used+n]
	p.used += (n + 63) &^ 63
	p.used = min(p.used, len(p.mem))
	return b
}

// read takes what comes. Wake-ups and answers come in the order in which they were sent.
func (p *Provider) read(conn io.Reader) {
	in := gob.NewDecoder(conn)
	for {
		m := new(message)
		if in.Decode(m) != nil {
			break
		}
		p.mu.Lock()
		wake, answer := p.wakes[m.Object], p.calls[m.ID]
		delete(p.calls, m.ID)
		p.mu.Unlock()
		if m.Call != callWake {
			answer <- m
		} else if wake != nil {
			wake()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = true
	for id, answer := range p.calls {
		answer <- broken
		delete(p.calls, id)
	}
}

// broken is the answer where none will come.
var broken = &message{Failure: pack(provider.StatusLink)}

// do makes a call and waits for the answer.
func (p *Provider) do(m *message) *message { return p.doContext(context.Background(), m) }

// doContext is do with a context, whose end the server is told of.
func (p *Provider) doContext(ctx context.Context, m *message) *message {
	if d, ok := ctx.Deadline(); ok {
		m.Deadline = d.UnixNano()
	}
	m.Ended = ctx.Err() == context.Canceled
	answer := make(chan *message, 1)
	p.mu.Lock()
	if p.failed {
		p.mu.Unlock()
		return broken
	}
	p.next++
	m.ID = p.next
	p.calls[m.ID] = answer
	p.mu.Unlock()
	p.send(m)
	select {
	case a := <-answer:
		return a
	case <-ctx.Done():
		if ctx.Err() == context.Canceled { // the server knows the deadline
			p.send(&message{Call: callCancel, ID: m.ID})
		}
		return <-answer
	}
}

// send writes a message. An error shows in the reader, too.
func (p *Provider) send(m *message) {
	p.wmu.Lock()
	defer p.wmu.Unlock()
	p.out.Encode(m)
}

// Name implements provider.Provider.
func (p *Provider) Name() string { return p.name }

// Attributes implements provider.Provider.
func (p *Provider) Attributes() provider.Attributes { return p.attr }

// Prefixes implements provider.Provider.
func (p *Provider) Prefixes() ([]netip.Prefix, error) {
	a := p.do(&message{Call: callPrefixes})
	return a.Prefixes, a.Failure.err()
}

// Dial implements provider.Provider.
func (p *Provider) Dial(ctx context.Context, local, remote netip.AddrPort) (provider.Endpoint, error) {
	return p.endpoint(p.doContext(ctx, &message{Call: callDial, Local: local, Remote: remote}))
}

// Listen implements provider.Provider.
func (p *Provider) Listen(local netip.AddrPort, backlog int) (provider.Listener, error) {
	a := p.do(&message{Call: callListen, Local: local, Number: backlog})
	if a.Failure != nil {
		return nil, a.Failure.err()
	}
	return &listener{p, a.Object, a.Local}, nil
}

// Close implements provider.Provider.
func (p *Provider) Close() error { return p.do(&message{Call: callShut}).Failure.err() }

type listener struct {
	p    *Provider
	id   uint64
	addr netip.AddrPort
}

func (l *listener) Addr() netip.AddrPort { return l.addr }

func (l *listener) Close() error {
	return l.p.do(&message{Call: callUnlisten, Object: l.id}).Failure.err()
}

func (l *listener) Accept() (provider.Request, error) {
	a := l.p.do(&message{Call: callAccept, Object: l.id})
	if a.Failure != nil {
		return nil, a.Failure.err()
	}
	return &request{l.p, a.Object, a.Local, a.Remote}, nil
}

type request struct {
	p             *Provider
	id            uint64
	local, remote netip.AddrPort
}

func (r *request) LocalAddr() netip.AddrPort { return r.local }

func (r *request) RemoteAddr() netip.AddrPort { return r.remote }

func (r *request) Accept(ctx context.Context) (provider.Endpoint, error) {
	return r.p.endpoint(r.p.doContext(ctx, &message{Call: callEstablish, Object: r.id}))
}

func (r *request) Reject(reason []byte) error {
	return r.p.do(&message{Call: callReject, Object: r.id, Reason: reason}).Failure.err()
}

// endpoint stands for an endpoint of the other process.
type endpoint struct {
	p             *Provider
	id            uint64
	attr          provider.Attributes
	local, remote netip.AddrPort

	mu        sync.Mutex                 // a leaf
	allocated map[provider.Handle][]byte // stand-ins
}

func (p *Provider) endpoint(a *message) (provider.Endpoint, error) {
	if a.Failure != nil {
		return nil, a.Failure.err()
	}
	return &endpoint{
		p: p, id: a.Object, attr: a.Attributes, local: a.Local, remote: a.Remote,
		allocated: make(map[provider.Handle][]byte),
	}, nil
}

func (e *endpoint) Attributes() provider.Attributes { return e.attr }
func (e *endpoint) LocalAddr() netip.AddrPort       { return e.local }
func (e *endpoint) RemoteAddr() netip.AddrPort      { return e.remote }

func (e *endpoint) do(m *message) *message {
	m.Object = e.id
	return e.p.do(m)
}

// segment says where b is.
func (e *endpoint) segment(s provider.Segment) segment {
	m := segment{Len: len(s.Bytes), Handle: s.Handle}
	if s.Bytes == nil {
		return m
	}
	var ok bool
	if m.Off, ok = within(e.p.mem, s.Bytes); ok {
		m.Place = placeShared
		return m
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if m.Off, ok = within(e.allocated[s.Handle], s.Bytes); ok {
		m.Place = placeAllocated
		return m
	}
	m.Place = placeElsewhere
	return m
}

func (e *endpoint) Allocate(size int) (provider.Region, error) {
	a := e.do(&message{Call: callAllocate, Number: size})
	if a.Failure != nil {
		return provider.Region{}, a.Failure.err()
	}
	r := provider.Region{Bytes: make([]byte, a.Number), Handle: a.Handle, Descriptor: a.Descriptor}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.allocated[r.Handle] = r.Bytes
	return r, nil
}

func (e *endpoint) register(m *message, b []byte) (provider.Region, error) {
	if m.Memory = e.segment(provider.Segment{Bytes: b}); m.Memory.Place != placeShared {
		return provider.Region{}, provider.StatusNoMemory
	}
	a := e.do(m)
	if a.Failure != nil {
		return provider.Region{}, a.Failure.err()
	}
	return provider.Region{Bytes: b, Handle: a.Handle, Descriptor: a.Descriptor}, nil
}

func (e *endpoint) Register(b []byte) (provider.Region, error) {
	return e.register(&message{Call: callRegister}, b)
}

func (e *endpoint) Expose(b []byte, rights provider.Rights) (provider.Region, error) {
	return e.register(&message{Call: callExpose, Rights: rights}, b)
}

func (e *endpoint) Deregister(h provider.Handle) error {
	err := e.do(&message{Call: callDeregister, Handle: h}).Failure.err()
	if err == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.allocated, h)
	}
	return err
}

func (e *endpoint) PostRecv(r provider.Recv) error {
	return e.do(&message{Call: callRecv, Context: r.Context, Memory: e.segment(r.Buffer)}).Failure.err()
}

func (e *endpoint) PostSend(s provider.Send) error {
	return e.do(&message{
		Call: callSend, Context: s.Context, Memory: e.segment(s.Local), Inline: s.Inline, Solicited: s.Solicited, Open: s.Open,
	}).Failure.err()
}

func (e *endpoint) rdma(c call, r provider.RDMA) error {
	return e.do(&message{
		Call: c, Context: r.Context, Memory: e.segment(r.Local), Descriptor: r.Remote, Offset: r.Offset,
	}).Failure.err()
}

func (e *endpoint) PostWrite(w provider.RDMA) error { return e.rdma(callWrite, w) }

func (e *endpoint) Poll(c []provider.Completion) int {
	return copy(c, e.do(&message{Call: callPoll, Number: len(c)}).Completions)
}

func (e *endpoint) OnWake(wake func()) {
	e.p.mu.Lock()
	defer e.p.mu.Unlock()
	e.p.wakes[e.id] = wake
}

func (e *endpoint) Arm(w provider.Wake) bool { return e.do(&message{Call: callArm, Wake: w}).Ready }

func (e *endpoint) Extension(id provider.GUID) (any, error) {
	if id == provider.GUIDSleeper {
		return nil, provider.StatusUnsupported // a call that sleeps would hold up the others
	}
	a := e.do(&message{Call: callExtension, GUID: id})
	switch a.Kind {
	case extensionNil:
		return nil, a.Failure.err()
	case extensionRead:
		return provider.RDMAReader(reader{e}), a.Failure.err()
	case extensionCache:
		return provider.CacheInvalidator(invalidator{e}), a.Failure.err()
	case extensionSpinner:
		return provider.Spinner(spinner{e}), a.Failure.err()
	case extensionAppender:
		return provider.Appender(appender{e}), a.Failure.err()
	}
	return struct{}{}, a.Failure.err()
}

func (e *endpoint) Close() error { return e.do(&message{Call: callClose}).Failure.err() }

type reader struct{ *endpoint }

func (r reader) PostRead(x provider.RDMA) error { return r.rdma(callRead, x) }

type invalidator struct{ *endpoint }

func (i invalidator) InvalidateCache(b []byte) {
	i.do(&message{Call: callInvalidate, Memory: i.segment(provider.Segment{Bytes: b})})
}

type spinner struct{ *endpoint }

func (s spinner) Spin() bool { return s.do(&message{Call: callSpin}).Ready }

type appender struct{ *endpoint }

func (a appender) Append(b []byte) bool { return a.do(&message{Call: callAppend, Data: b}).Ready }

func (a appender) Unread(unread bool) { a.do(&message{Call: callUnread, Unread: unread}) }
