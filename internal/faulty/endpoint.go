package faulty

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"sansock/provider"
)

// Endpoint is another endpoint with hooks.
type Endpoint struct {
	provider.Endpoint
	On     EndpointHooks
	Dialed bool        // by Dial; else a request was accepted
	Muted  atomic.Bool // the wake function is not called

	uses   *uses
	closed atomic.Bool

	// Mu guards what follows. It is a leaf, but for the counts of the provider.
	Mu sync.Mutex
	// Extra are completions that Poll reports after those of the wrapped endpoint.
	//
	// +checklocks:Mu
	Extra []provider.Completion
	// Recvs are the receives that have not completed, by their context.
	//
	// +checklocks:Mu
	Recvs map[uint64]provider.Segment
	// +checklocks:Mu
	regions map[provider.Handle]bool
	// +checklocks:Mu
	wake func()
}

// EndpointHooks take the place of methods of an Endpoint, but for See and Wake.
type EndpointHooks struct {
	Attributes func() provider.Attributes
	RemoteAddr func() netip.AddrPort
	Allocate   func(size int) (provider.Region, error)
	Register   func(b []byte) (provider.Region, error)
	Expose     func(b []byte, rights provider.Rights) (provider.Region, error)
	Deregister func(h provider.Handle) error
	PostRecv   func(r provider.Recv) error
	PostSend   func(s provider.Send) error
	RDMA       func(op provider.Op, r provider.RDMA) error // PostWrite and PostRead
	Poll       func(c []provider.Completion) int
	Arm        func(w provider.Wake) bool
	Extension  func(id provider.GUID) (any, error)
	Append     func(b []byte) bool
	Close      func() error

	// See is shown what Poll has taken from the wrapped endpoint. It may change a completion, and
	// drops it by returning false.
	See func(c *provider.Completion) bool

	// Wake is called in place of the wake function, which it is given.
	Wake func(wake func())
}

func newEndpoint(ep provider.Endpoint, dialed bool, u *uses) *Endpoint {
	u.add(Uses{Endpoints: 1})
	return &Endpoint{Endpoint: ep, Dialed: dialed, uses: u,
		Recvs: make(map[uint64]provider.Segment), regions: make(map[provider.Handle]bool)}
}

// Closed reports whether Close has returned.
func (e *Endpoint) Closed() bool { return e.closed.Load() }

// Inject reports a completion that the wrapped endpoint knows nothing of.
func (e *Endpoint) Inject(c provider.Completion) {
	e.Mu.Lock()
	e.Extra = append(e.Extra, c)
	e.Mu.Unlock()
	if !e.Closed() {
		e.Wake()
	}
}

// Wake calls the wake function as the wrapped endpoint does.
func (e *Endpoint) Wake() {
	e.Mu.Lock()
	wake := e.wake
	e.Mu.Unlock()
	if wake != nil {
		wake()
	}
}

// Attributes implements provider.Endpoint.
func (e *Endpoint) Attributes() provider.Attributes {
	if e.On.Attributes != nil {
		return e.On.Attributes()
	}
	return e.Endpoint.Attributes()
}

// RemoteAddr implements provider.Endpoint.
func (e *Endpoint) RemoteAddr() netip.AddrPort {
	if e.On.RemoteAddr != nil {
		return e.On.RemoteAddr()
	}
	return e.Endpoint.RemoteAddr()
}

// registered counts a region, if there was no error.
func (e *Endpoint) registered(r provider.Region, err error) (provider.Region, error) {
	if err == nil {
		e.Mu.Lock()
		defer e.Mu.Unlock()
		e.regions[r.Handle] = true
		e.uses.add(Uses{Regions: 1})
	}
	return r, err
}

// Allocate implements provider.Endpoint.
func (e *Endpoint) Allocate(size int) (provider.Region, error) {
	if e.On.Allocate != nil {
		return e.registered(e.On.Allocate(size))
	}
	return e.registered(e.Endpoint.Allocate(size))
}

// Register implements provider.Endpoint.
func (e *Endpoint) Register(b []byte) (provider.Region, error) {
	if e.On.Register != nil {
		return e.registered(e.On.Register(b))
	}
	return e.registered(e.Endpoint.Register(b))
}

// Expose implements provider.Endpoint.
func (e *Endpoint) Expose(b []byte, rights provider.Rights) (provider.Region, error) {
	if e.On.Expose != nil {
		return e.registered(e.On.Expose(b, rights))
	}
	return e.registered(e.Endpoint.Expose(b, rights))
}

// Deregister implements provider.Endpoint.
func (e *Endpoint) Deregister(h provider.Handle) error {
	deregister := e.Endpoint.Deregister
	if e.On.Deregister != nil {
		deregister = e.On.Deregister
	}
	err := deregister(h)
	e.Mu.Lock()
	defer e.Mu.Unlock()
	if err == nil && e.regions[h] {
		delete(e.regions, h)
		e.uses.add(Uses{Regions: -1})
	}
	return err
}

// PostRecv implements provider.Endpoint.
func (e *Endpoint) PostRecv(r provider.Recv) error {
	post := e.Endpoint.PostRecv
	if e.On.PostRecv != nil {
		post = e.On.PostRecv
	}
	e.Mu.Lock()
	e.Recvs[r.Context] = r.Buffer // before it can complete
	e.Mu.Unlock()
	err := post(r)
	if err != nil {
		e.Mu.Lock()
		delete(e.Recvs, r.Context)
		e.Mu.Unlock()
	}
	return err
}

// PostSend implements provider.Endpoint.
func (e *Endpoint) PostSend(s provider.Send) error {
	if e.On.PostSend != nil {
		return e.On.PostSend(s)
	}
	return e.Endpoint.PostSend(s)
}

// PostWrite implements provider.Endpoint.
func (e *Endpoint) PostWrite(r provider.RDMA) error { return e.rdma(provider.OpWrite, r) }

// PostRead implements provider.RDMAReader.
func (e *Endpoint) PostRead(r provider.RDMA) error { return e.rdma(provider.OpRead, r) }

func (e *Endpoint) rdma(op provider.Op, r provider.RDMA) error {
	if e.On.RDMA != nil {
		return e.On.RDMA(op, r)
	}
	return e.PassRDMA(op, r)
}

// PassRDMA hands an RDMA operation to the wrapped endpoint.
func (e *Endpoint) PassRDMA(op provider.Op, r provider.RDMA) error {
	if op == provider.OpWrite {
		return e.Endpoint.PostWrite(r)
	}
	ext, err := e.Endpoint.Extension(provider.GUIDRDMARead)
	if err != nil {
		return err
	}
	return ext.(provider.RDMAReader).PostRead(r)
}

// Poll implements provider.Endpoint.
func (e *Endpoint) Poll(c []provider.Completion) int {
	if e.On.Poll != nil {
		return e.On.Poll(c)
	}
	return e.PassPoll(c)
}

// PassPoll takes what the wrapped endpoint reports, as See leaves it, and then the extra completions.
func (e *Endpoint) PassPoll(c []provider.Completion) int {
	for {
		n, kept := e.Endpoint.Poll(c), 0
		for i := range c[:n] {
			id, op := c[i].Context, c[i].Op
			if e.On.See == nil || e.On.See(&c[i]) {
				c[kept] = c[i]
				kept++
			}
			if op == provider.OpRecv {
				e.Mu.Lock()
				delete(e.Recvs, id)
				e.Mu.Unlock()
			}
		}
		if n > 0 && kept == 0 {
			continue
		}
		e.Mu.Lock()
		more := copy(c[kept:], e.Extra)
		e.Extra = e.Extra[more:]
		e.Mu.Unlock()
		return kept + more
	}
}

// Arm implements provider.Endpoint.
func (e *Endpoint) Arm(w provider.Wake) bool {
	arm := e.Endpoint.Arm
	if e.On.Arm != nil {
		arm = e.On.Arm
	}
	ready := arm(w)
	e.Mu.Lock()
	defer e.Mu.Unlock()
	return ready || w != provider.WakeNone && len(e.Extra) > 0
}

// OnWake implements provider.Endpoint.
func (e *Endpoint) OnWake(wake func()) {
	call := func() {
		switch {
		case e.Muted.Load():
		case e.On.Wake != nil:
			e.On.Wake(wake)
		default:
			wake()
		}
	}
	e.Mu.Lock()
	e.wake = call
	e.Mu.Unlock()
	e.Endpoint.OnWake(call)
}

// Extension implements provider.Endpoint. Those that do something are hooked, too.
func (e *Endpoint) Extension(id provider.GUID) (any, error) {
	if e.On.Extension != nil {
		return e.On.Extension(id)
	}
	ext, err := e.Endpoint.Extension(id)
	switch {
	case err != nil:
	case id == provider.GUIDRDMARead:
		return provider.RDMAReader(e), nil
	case id == provider.GUIDAppender:
		return appender{ext.(provider.Appender), e}, nil
	}
	return ext, err
}

// appender is the wrapped endpoint's with the hook.
type appender struct {
	provider.Appender
	e *Endpoint
}

func (a appender) Append(b []byte) bool {
	if a.e.On.Append != nil {
		return a.e.On.Append(b)
	}
	return a.Appender.Append(b)
}

// Close implements provider.Endpoint.
func (e *Endpoint) Close() error {
	shut := e.Endpoint.Close
	if e.On.Close != nil {
		shut = e.On.Close
	}
	err := shut()
	if !e.closed.Swap(true) {
		e.uses.add(Uses{Endpoints: -1})
	}
	return err
}
