package providertest_test

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"sansock/emu"
	"sansock/provider"
	"sansock/provider/providertest"
)

// world is an emulated SAN with a mistake, and what its ends know of each other.
type world struct {
	m *mutant

	mu      sync.Mutex
	ends    []*faultyEnd
	exposed []*exposure
}

// exposure is memory that was registered, exposed or not.
type exposure struct {
	provider.Region
	rights provider.Rights
	owner  *faultyEnd
	gone   bool // deregistered, or its endpoint closed
}

// mutant is a mistake that a provider could make, and the rules that have to find it.
type mutant struct {
	name  string
	rules []string
	shows string // and what they have to say, in part
	conf  emu.Config

	provider func(p *faultyProvider) // sets hooks
	end      func(e *faultyEnd)      // likewise
}

// modest is c on a fabric of its own, with limits that are quickly tried where it names none.
func modest(c emu.Config) emu.Config {
	c.Fabric = emu.NewFabric()
	for limit, to := range map[*int]int{&c.MaxMessage: 64 << 10, &c.MaxRDMA: 256 << 10, &c.MaxRecvs: 256, &c.MaxSends: 128} {
		if *limit == 0 {
			*limit = to
		}
	}
	return c
}

func (m *mutant) config() providertest.Config {
	return providertest.Config{Rounds: 60, Open: func() (provider.Provider, provider.Provider, error) {
		c := modest(m.conf)
		inner, err := emu.New(c)
		p := &faultyProvider{Provider: inner, world: &world{m: m}, closing: make(chan struct{})}
		if m.provider != nil {
			m.provider(p)
		}
		return p, p, err
	}}
}

// faultyProvider calls its hooks, where they are set, instead of the emulator.
type faultyProvider struct {
	provider.Provider
	*world
	closing chan struct{}

	name       func() string
	attributes func() provider.Attributes
	prefixes   func() ([]netip.Prefix, error)
	dial       func(ctx context.Context, local, remote netip.AddrPort) (provider.Endpoint, error)
	listen     func(local netip.AddrPort, backlog int) (provider.Listener, error)
	listener   func(l *faultyListener) // sets hooks
	close      func() error
}

func (p *faultyProvider) Name() string {
	if p.name != nil {
		return p.name()
	}
	return p.Provider.Name()
}

func (p *faultyProvider) Attributes() provider.Attributes {
	if p.attributes != nil {
		return p.attributes()
	}
	return p.Provider.Attributes()
}

func (p *faultyProvider) Prefixes() ([]netip.Prefix, error) {
	if p.prefixes != nil {
		return p.prefixes()
	}
	return p.Provider.Prefixes()
}

func (p *faultyProvider) Dial(ctx context.Context, local, remote netip.AddrPort) (provider.Endpoint, error) {
	dial := p.Provider.Dial
	if p.dial != nil {
		dial = p.dial
	}
	ep, err := dial(ctx, local, remote)
	if err != nil {
		return nil, err
	}
	return p.wrap(ep), nil
}

func (p *faultyProvider) Listen(local netip.AddrPort, backlog int) (provider.Listener, error) {
	listen := p.Provider.Listen
	if p.listen != nil {
		listen = p.listen
	}
	inner, err := listen(local, backlog)
	if err != nil {
		return nil, err
	}
	l := &faultyListener{Listener: inner, p: p}
	if p.listener != nil {
		p.listener(l)
	}
	return l, nil
}

func (p *faultyProvider) Close() error {
	close(p.closing)
	if p.close != nil {
		return p.close()
	}
	return p.Provider.Close()
}

type faultyListener struct {
	provider.Listener
	p *faultyProvider

	accept  func() (provider.Request, error)
	close   func() error
	request func(r *faultyRequest) // sets hooks
}

func (l *faultyListener) Accept() (provider.Request, error) {
	accept := l.Listener.Accept
	if l.accept != nil {
		accept = l.accept
	}
	inner, err := accept()
	if err != nil {
		return nil, err
	}
	r := &faultyRequest{Request: inner, l: l}
	if l.request != nil {
		l.request(r)
	}
	return r, nil
}

func (l *faultyListener) Close() error {
	if l.close != nil {
		return l.close()
	}
	return l.Listener.Close()
}

type faultyRequest struct {
	provider.Request
	l *faultyListener

	accept    func(ctx context.Context) (provider.Endpoint, error)
	reject    func(reason []byte) error
	localAddr func() netip.AddrPort
}

func (r *faultyRequest) Accept(ctx context.Context) (provider.Endpoint, error) {
	accept := r.Request.Accept
	if r.accept != nil {
		accept = r.accept
	}
	ep, err := accept(ctx)
	if err != nil {
		return nil, err
	}
	return r.l.p.wrap(ep), nil
}

func (r *faultyRequest) Reject(reason []byte) error {
	if r.reject != nil {
		return r.reject(reason)
	}
	return r.Request.Reject(reason)
}

func (r *faultyRequest) LocalAddr() netip.AddrPort {
	if r.localAddr != nil {
		return r.localAddr()
	}
	return r.Request.LocalAddr()
}

// faultyEnd calls its hooks, where they are set, instead of the emulator.
type faultyEnd struct {
	provider.Endpoint
	*world
	number int // in the world, from 0

	attributes func() provider.Attributes
	remoteAddr func() netip.AddrPort
	allocate   func(size int) (provider.Region, error)
	register   func(b []byte) (provider.Region, error)
	expose     func(b []byte, rights provider.Rights) (provider.Region, error)
	deregister func(h provider.Handle) error
	postRecv   func(r provider.Recv) error
	postSend   func(s provider.Send) error
	rdma       func(op provider.Op, r provider.RDMA) error
	see        func(c *provider.Completion) bool // changes a completion; false: drops it
	poll       func(c []provider.Completion) int
	arm        func(w provider.Wake) bool
	wake       func(wake func())
	extension  func(id provider.GUID) (any, error)
	grow       func(b []byte) bool
	close      func() error

	muted  atomic.Bool // the wake function is not called
	closed atomic.Bool

	qmu    sync.Mutex // a leaf
	extra  []provider.Completion
	recvs  map[uint64]provider.Segment
	posted int             // receives ever posted
	order  []provider.Recv // all of them
	more   map[uint64]int  // what a mutant has added to the messages of receives
	waiter func()
	look   func() // what polling does for the peer
}

func (w *world) wrap(ep provider.Endpoint) *faultyEnd {
	e := &faultyEnd{Endpoint: ep, world: w, recvs: make(map[uint64]provider.Segment), more: make(map[uint64]int)}
	w.mu.Lock()
	e.number = len(w.ends)
	w.ends = append(w.ends, e)
	w.mu.Unlock()
	if w.m.end != nil {
		w.m.end(e)
	}
	return e
}

// peer is the other end, nil as long as it is not known.
func (e *faultyEnd) peer() *faultyEnd {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range e.ends {
		if x.Endpoint.LocalAddr() == e.Endpoint.RemoteAddr() && x.Endpoint.RemoteAddr() == e.Endpoint.LocalAddr() {
			return x
		}
	}
	return nil
}

// find returns the first memory that fits.
func (w *world) find(fits func(x *exposure) bool) *exposure {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.IndexFunc(w.exposed, fits); i >= 0 {
		return w.exposed[i]
	}
	return nil
}

// inject reports a completion that the emulator knows nothing of.
func (e *faultyEnd) inject(c provider.Completion) {
	e.qmu.Lock()
	e.extra = append(e.extra, c)
	waiter := e.waiter
	e.qmu.Unlock()
	if waiter != nil && !e.closed.Load() {
		waiter()
	}
}

// force does an RDMA operation behind the emulator's back, on memory where it may be out of its registration.
func (e *faultyEnd) force(op provider.Op, r provider.RDMA, mem []byte) error {
	if op == provider.OpWrite {
		copy(mem, r.Local.Bytes)
	} else {
		copy(r.Local.Bytes, mem)
	}
	e.inject(provider.Completion{Context: r.Context, Op: op})
	return nil
}

func (e *faultyEnd) Attributes() provider.Attributes {
	if e.attributes != nil {
		return e.attributes()
	}
	return e.Endpoint.Attributes()
}

func (e *faultyEnd) RemoteAddr() netip.AddrPort {
	if e.remoteAddr != nil {
		return e.remoteAddr()
	}
	return e.Endpoint.RemoteAddr()
}

func (e *faultyEnd) note(r provider.Region, rights provider.Rights, err error) (provider.Region, error) {
	if err == nil {
		e.mu.Lock()
		e.exposed = append(e.exposed, &exposure{Region: r, rights: rights, owner: e})
		e.mu.Unlock()
	}
	return r, err
}

func (e *faultyEnd) Allocate(size int) (provider.Region, error) {
	allocate := e.Endpoint.Allocate
	if e.allocate != nil {
		allocate = e.allocate
	}
	r, err := allocate(size)
	return e.note(r, 0, err)
}

func (e *faultyEnd) Register(b []byte) (provider.Region, error) {
	register := e.Endpoint.Register
	if e.register != nil {
		register = e.register
	}
	r, err := register(b)
	return e.note(r, 0, err)
}

func (e *faultyEnd) Expose(b []byte, rights provider.Rights) (provider.Region, error) {
	expose := e.Endpoint.Expose
	if e.expose != nil {
		expose = e.expose
	}
	r, err := expose(b, rights)
	return e.note(r, rights, err)
}

func (e *faultyEnd) Deregister(h provider.Handle) error {
	deregister := e.Endpoint.Deregister
	if e.deregister != nil {
		deregister = e.deregister
	}
	err := deregister(h)
	if err == nil {
		e.mu.Lock()
		for _, x := range e.exposed {
			if x.owner == e && x.Handle == h {
				x.gone = true
			}
		}
		e.mu.Unlock()
	}
	return err
}

func (e *faultyEnd) PostRecv(r provider.Recv) error {
	e.qmu.Lock()
	e.recvs[r.Context] = r.Buffer
	e.posted++
	e.qmu.Unlock()
	var err error
	if e.postRecv != nil {
		err = e.postRecv(r)
	} else {
		err = e.Endpoint.PostRecv(r)
	}
	e.qmu.Lock()
	defer e.qmu.Unlock()
	if err != nil {
		delete(e.recvs, r.Context)
	} else {
		e.order = append(e.order, r)
	}
	return err
}

func (e *faultyEnd) PostSend(s provider.Send) error {
	if e.postSend != nil {
		return e.postSend(s)
	}
	return e.Endpoint.PostSend(s)
}

func (e *faultyEnd) PostWrite(r provider.RDMA) error {
	if e.rdma != nil {
		return e.rdma(provider.OpWrite, r)
	}
	return e.Endpoint.PostWrite(r)
}

func (e *faultyEnd) PostRead(r provider.RDMA) error {
	if e.rdma != nil {
		return e.rdma(provider.OpRead, r)
	}
	return e.pass(provider.OpRead, r)
}

// pass hands an RDMA operation to the emulator.
func (e *faultyEnd) pass(op provider.Op, r provider.RDMA) error {
	if op == provider.OpWrite {
		return e.Endpoint.PostWrite(r)
	}
	ext, err := e.Endpoint.Extension(provider.GUIDRDMARead)
	if err != nil {
		return err
	}
	return ext.(provider.RDMAReader).PostRead(r)
}

func (e *faultyEnd) Poll(c []provider.Completion) int {
	if e.poll != nil {
		return e.poll(c)
	}
	return e.polled(c)
}

// polled takes what the emulator reports, then what was injected.
func (e *faultyEnd) polled(c []provider.Completion) int {
	for {
		n, kept := e.Endpoint.Poll(c), 0
		for i := range c[:n] {
			id, op := c[i].Context, c[i].Op
			if e.see == nil || e.see(&c[i]) {
				c[kept] = c[i]
				kept++
			}
			if op == provider.OpRecv {
				e.qmu.Lock()
				delete(e.recvs, id)
				e.qmu.Unlock()
			}
		}
		if n > 0 && kept == 0 {
			continue
		}
		e.qmu.Lock()
		more := copy(c[kept:], e.extra)
		e.extra = e.extra[more:]
		e.qmu.Unlock()
		return kept + more
	}
}

func (e *faultyEnd) Arm(w provider.Wake) bool {
	var ready bool
	if e.arm != nil {
		ready = e.arm(w)
	} else {
		ready = e.Endpoint.Arm(w)
	}
	e.qmu.Lock()
	defer e.qmu.Unlock()
	return ready || w != provider.WakeNone && len(e.extra) > 0
}

func (e *faultyEnd) OnWake(wake func()) {
	call := func() {
		switch {
		case e.muted.Load():
		case e.wake != nil:
			e.wake(wake)
		default:
			wake()
		}
	}
	e.qmu.Lock()
	e.waiter = call
	e.qmu.Unlock()
	e.Endpoint.OnWake(call)
}

func (e *faultyEnd) Extension(id provider.GUID) (any, error) {
	if e.extension != nil {
		return e.extension(id)
	}
	ext, err := e.Endpoint.Extension(id)
	switch {
	case err != nil:
	case id == provider.GUIDRDMARead:
		return provider.RDMAReader(e), nil
	case id == provider.GUIDAppender:
		return provider.Appender(e), nil
	}
	return ext, err
}

func (e *faultyEnd) Append(b []byte) bool {
	if e.grow != nil {
		return e.grow(b)
	}
	return e.append(b)
}

// append hands bytes to the emulator.
func (e *faultyEnd) append(b []byte) bool {
	a, err := e.Endpoint.Extension(provider.GUIDAppender)
	return err == nil && a.(provider.Appender).Append(b)
}

func (e *faultyEnd) Unread(bool) {}

func (e *faultyEnd) Close() error {
	shut := e.Endpoint.Close
	if e.close != nil {
		shut = e.close
	}
	err := shut()
	e.closed.Store(true)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range e.exposed {
		if x.owner == e {
			x.gone = true
		}
	}
	return err
}
