package providertest_test

import (
	"slices"
	"sync"

	"sansock/emu"
	"sansock/internal/faulty"
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
		w := &world{m: m}
		p := &faultyProvider{wrapped: faulty.New(inner), world: w, closing: make(chan struct{})}
		p.OnEndpoint = func(e *faulty.Endpoint) provider.Endpoint { return w.wrap(e) }
		if m.provider != nil {
			m.provider(p)
		}
		return p, p, err
	}}
}

// wrapped and wrappedEnd give faultyProvider and faultyEnd the fields of these, so that Provider and Endpoint are the emulator's.
type (
	wrapped    = faulty.Provider
	wrappedEnd = faulty.Endpoint
)

// faultyProvider calls its hooks, where they are set, instead of the emulator.
type faultyProvider struct {
	*wrapped
	*world
	closing chan struct{}
}

func (p *faultyProvider) Close() error {
	close(p.closing)
	return p.wrapped.Close()
}

// faultyEnd calls its hooks, where they are set, instead of the emulator. What follows number is guarded by Mu.
type faultyEnd struct {
	*wrappedEnd
	*world
	number int // in the world, from 0

	posted int             // receives ever posted
	order  []provider.Recv // all of them
	more   map[uint64]int  // what a mutant has added to the messages of receives
	look   func()          // what polling does for the peer
}

func (w *world) wrap(inner *faulty.Endpoint) *faultyEnd {
	e := &faultyEnd{wrappedEnd: inner, world: w, more: make(map[uint64]int)}
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

// force does an RDMA operation behind the emulator's back, on memory where it may be out of its registration.
func (e *faultyEnd) force(op provider.Op, r provider.RDMA, mem []byte) error {
	if op == provider.OpWrite {
		copy(mem, r.Local.Bytes)
	} else {
		copy(r.Local.Bytes, mem)
	}
	e.Inject(provider.Completion{Context: r.Context, Op: op})
	return nil
}

// append hands bytes to the emulator.
func (e *faultyEnd) append(b []byte) bool {
	a, err := e.Endpoint.Extension(provider.GUIDAppender)
	return err == nil && a.(provider.Appender).Append(b)
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
	r, err := e.wrappedEnd.Allocate(size)
	return e.note(r, 0, err)
}

func (e *faultyEnd) Register(b []byte) (provider.Region, error) {
	r, err := e.wrappedEnd.Register(b)
	return e.note(r, 0, err)
}

func (e *faultyEnd) Expose(b []byte, rights provider.Rights) (provider.Region, error) {
	r, err := e.wrappedEnd.Expose(b, rights)
	return e.note(r, rights, err)
}

func (e *faultyEnd) Deregister(h provider.Handle) error {
	err := e.wrappedEnd.Deregister(h)
	if err == nil {
		e.forget(func(x *exposure) bool { return x.owner == e && x.Handle == h })
	}
	return err
}

func (e *faultyEnd) Close() error {
	err := e.wrappedEnd.Close()
	e.forget(func(x *exposure) bool { return x.owner == e })
	return err
}

// forget notes that memory has gone.
func (w *world) forget(gone func(x *exposure) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.exposed {
		x.gone = x.gone || gone(x)
	}
}

func (e *faultyEnd) PostRecv(r provider.Recv) error {
	e.Mu.Lock()
	e.posted++
	e.Mu.Unlock()
	err := e.wrappedEnd.PostRecv(r)
	if err == nil {
		e.Mu.Lock()
		e.order = append(e.order, r)
		e.Mu.Unlock()
	}
	return err
}
