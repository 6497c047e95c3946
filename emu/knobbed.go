package emu

import (
	"sansock/internal/regtable"
	"sansock/provider"
)

// knobbed is an endpoint that faults or a link's shape have to do with. Which kind a connection
// gets is decided when it is made, so that others pay nothing for the knobs.
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
