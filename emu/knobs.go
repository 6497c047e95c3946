package emu

import (
	"time"

	"sansock/internal/alarm"
	"sansock/internal/regtable"
	"sansock/provider"
)

// Completions makes completions come late and in batches. The zero value reports each at once.
type Completions struct {
	Delay time.Duration // how long a completion waits at most; 0 with a Batch: 1 ms
	Batch int           // how many end the wait; 0: no number
}

// slow holds the completions of one endpoint back. The endpoint's mutex guards it.
type slow struct {
	Completions
	alarm alarm.Alarm
	set   bool
	fires func() // what the alarm calls
}

// newSlow is for e. It returns nil where nothing is held back.
func newSlow(c Completions, e *endpoint) *slow {
	if c.Delay <= 0 {
		if c.Batch <= 1 {
			return nil
		}
		c.Delay = time.Millisecond
	}
	s := &slow{Completions: c}
	s.fires = func() { s.fire(e) }
	return s
}

// hold hides the completion that has just been queued, or shows all when the batch is full. It reports whether to call
// callWake. Called with the lock held.
func (s *slow) hold(e *endpoint, urgent bool) bool {
	if e.gate&gateOver != 0 {
		return e.rouse(urgent)
	}
	e.hidden++
	if s.Batch > 0 && int(e.hidden) >= s.Batch {
		return e.reveal()
	}
	if !s.set {
		s.set = true
		s.alarm.Set(s.Delay, s.fires)
	}
	return false
}

func (s *slow) fire(e *endpoint) {
	e.lock()
	s.set = false
	wake := e.reveal()
	e.unlock()
	if wake {
		e.callWake()
	}
}

// reveal shows what is hidden, and reports whether to call callWake. Called with the lock held.
func (e *endpoint) reveal() bool {
	if e.hidden == 0 {
		return false
	}
	urgent := false
	for i := e.comps.Len() - int(e.hidden); i < e.comps.Len(); i++ {
		urgent = urgent || e.comps.At(i).urgent
	}
	e.hidden = 0
	return e.rouse(urgent)
}

// knobbed is an endpoint that faults or a link's shape have to do with. Which kind a connection gets is
// decided when it is made, so that others pay nothing for the knobs.
type knobbed struct{ *endpoint }

// face is the endpoint as its user sees it.
func (e *endpoint) face() provider.Endpoint {
	if e.prov.faults != nil || e.egress() != nil {
		return knobbed{e}
	}
	return e
}

// Allocate implements provider.Endpoint.
func (k knobbed) Allocate(size int) (provider.Region, error) {
	if err := k.prov.faults.at(StepAllocate); err != nil {
		return provider.Region{}, err
	}
	return k.endpoint.Allocate(size)
}

// Register implements provider.Endpoint.
func (k knobbed) Register(b []byte) (provider.Region, error) {
	if err := k.prov.faults.at(StepRegister); err != nil {
		return provider.Region{}, err
	}
	return k.endpoint.Register(b)
}

// Expose implements provider.Endpoint.
func (k knobbed) Expose(b []byte, rights provider.Rights) (provider.Region, error) {
	if err := k.prov.faults.at(StepExpose); err != nil {
		return provider.Region{}, err
	}
	return k.endpoint.Expose(b, rights)
}

// Deregister implements provider.Endpoint.
func (k knobbed) Deregister(h provider.Handle) error {
	if err := k.prov.faults.at(StepDeregister); err != nil {
		return err
	}
	return k.endpoint.Deregister(h)
}

// Extension implements provider.Endpoint.
func (k knobbed) Extension(id provider.GUID) (any, error) {
	x, err := k.endpoint.Extension(id)
	switch {
	case id == provider.GUIDRDMARead && err == nil:
		return provider.RDMAReader(k), nil
	case id == provider.GUIDAppender:
		return nil, provider.StatusUnsupported // what Append adds would get round the knobs
	}
	return x, err
}

// PostRecv implements provider.Endpoint.
func (k knobbed) PostRecv(r provider.Recv) error {
	if err := k.prov.faults.at(StepPostRecv); err != nil {
		return err
	}
	return k.endpoint.PostRecv(r)
}

// PostSend implements provider.Endpoint.
func (k knobbed) PostSend(s provider.Send) error {
	e := k.endpoint
	if err := e.prov.faults.at(StepPostSend); err != nil {
		return err
	}
	p := parcel{from: e, kind: provider.OpSend, ctx: s.Context, slot: regtable.None, inline: s.IsInline(), solicited: s.Solicited}
	p.fail = provider.StatusOf(e.prov.faults.at(StepTransfer))
	l := e.egress()
	if l == nil && p.fail == provider.StatusOK {
		return e.PostSend(s)
	}
	if p.inline {
		if len(s.Inline[0])+len(s.Inline[1]) > e.attr.MaxInline {
			return provider.StatusTooLong
		}
		e.lock()
		st := e.refusal()
		e.unlock()
		if st != provider.StatusOK {
			return st
		}
		p.body = append(append(l.buffer(), s.Inline[0]...), s.Inline[1]...)
	} else {
		if len(s.Local.Bytes) > e.attr.MaxMessage {
			return provider.StatusTooLong
		}
		i, err := e.begin(&s.Local, provider.OpSend, true)
		if err != nil {
			return err
		}
		p.slot, p.body = i, s.Local.Bytes
	}
	return k.carry(l, &p, len(p.body))
}

// PostWrite implements provider.Endpoint.
func (k knobbed) PostWrite(w provider.RDMA) error {
	if err := k.prov.faults.at(StepPostWrite); err != nil {
		return err
	}
	return k.rdma(&w, provider.OpWrite)
}

// PostRead implements provider.RDMAReader.
func (k knobbed) PostRead(r provider.RDMA) error {
	if !k.attr.RDMARead {
		return provider.StatusUnsupported
	}
	if err := k.prov.faults.at(StepPostRead); err != nil {
		return err
	}
	return k.rdma(&r, provider.OpRead)
}

func (k knobbed) rdma(r *provider.RDMA, kind provider.Op) error {
	e := k.endpoint
	p := parcel{from: e, kind: kind, ctx: r.Context, rdma: *r, fail: provider.StatusOf(e.prov.faults.at(StepTransfer))}
	l := e.egress()
	if l == nil && p.fail == provider.StatusOK {
		return e.rdma(r, kind)
	}
	size := requestSize
	if kind == provider.OpWrite {
		size = len(r.Local.Bytes)
	}
	if len(r.Local.Bytes) > e.attr.MaxRDMA {
		return provider.StatusTooLong
	}
	i, err := e.begin(&r.Local, kind, e.attr.LocalRegistration)
	if err != nil {
		return err
	}
	p.slot = i
	return k.carry(l, &p, size)
}

// carry sends an admitted operation through l, or fails it where there is none.
func (k knobbed) carry(l *link, p *parcel, size int) error {
	st := provider.StatusOK
	if l == nil {
		st = p.arrive()
	} else {
		st = l.send(*p, size)
	}
	if st == provider.StatusDisconnected {
		return k.notPosted()
	}
	return st.Err()
}

// DropLink makes the connection of e, an endpoint of this package, swallow everything in both directions without a word to
// either end, as a partition does. It reports whether e is one.
func DropLink(e provider.Endpoint) bool { return onCore(e, (*endpoint).lose) }

// CutLink ends the connection of e, an endpoint of this package: both ends hear of it, with StatusLink. It reports whether e
// is one.
func CutLink(e provider.Endpoint) bool {
	return onCore(e, func(e *endpoint) { e.sever(provider.StatusLink) })
}

func onCore(e provider.Endpoint, do func(*endpoint)) bool {
	switch e := e.(type) {
	case *endpoint:
		do(e)
	case knobbed:
		do(e.endpoint)
	default:
		return false
	}
	return true
}

// DropLinks is DropLink for every endpoint of the provider that is not closed.
func (p *Provider) DropLinks() {
	for _, e := range p.endpoints() {
		e.lose()
	}
}

// CutLinks is CutLink for every endpoint of the provider that is not closed.
func (p *Provider) CutLinks() {
	for _, e := range p.endpoints() {
		e.sever(provider.StatusLink)
	}
}

func (p *Provider) endpoints() []*endpoint {
	p.mu.Lock()
	defer p.mu.Unlock()
	var es []*endpoint
	for e := p.newest; e != nil; e = e.older {
		es = append(es, e)
	}
	return es
}

// Stats is what a provider has in use.
type Stats struct {
	Listeners     int // open
	Endpoints     int // not closed
	Registrations int // of those: not deregistered
}

// Stats counts what the provider has in use, so that a test can show that nothing is left.
func (p *Provider) Stats() Stats {
	p.mu.Lock()
	s := Stats{Listeners: len(p.listeners)}
	p.mu.Unlock()
	for _, e := range p.endpoints() {
		s.Endpoints++
		e.lock()
		s.Registrations += e.table.Len()
		e.unlock()
	}
	return s
}
