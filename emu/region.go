package emu

import (
	"sansock/internal/regtable"
	"sansock/provider"
)

// Allocate implements provider.Endpoint.
func (e *endpoint) Allocate(size int) (provider.Region, error) {
	b, err := e.prov.proxy.allocate(size)
	if err != nil {
		return provider.Region{}, err
	}
	r, err := e.enter(b, 0, true)
	if err != nil {
		e.prov.proxy.release(b, true)
	}
	return r, err
}

// Register implements provider.Endpoint.
func (e *endpoint) Register(b []byte) (provider.Region, error) { return e.register(b, 0) }

// Expose implements provider.Endpoint.
func (e *endpoint) Expose(b []byte, rights provider.Rights) (provider.Region, error) {
	if rights == 0 || rights&^(provider.RightRead|provider.RightWrite) != 0 ||
		rights&provider.RightRead != 0 && !e.attr.RDMAReadable {
		return provider.Region{}, provider.StatusUnsupported
	}
	return e.register(b, rights)
}

func (e *endpoint) register(b []byte, rights provider.Rights) (provider.Region, error) {
	if e.prov.proxy.limited {
		if err := e.prov.proxy.register(b); err != nil {
			return provider.Region{}, err
		}
	}
	r, err := e.enter(b, rights, false)
	if err != nil {
		e.prov.proxy.release(b, false)
	}
	return r, err
}

func (e *endpoint) enter(b []byte, rights provider.Rights, common bool) (provider.Region, error) {
	e.lock()
	defer e.unlock()
	if e.life != lifeOpen {
		return provider.Region{}, provider.StatusClosed
	}
	i, r, ok := e.table.Add(b, rights)
	if !ok {
		return r, provider.StatusLimit
	}
	e.table.Slots[i].Common = common
	return r, nil
}

// Deregister implements provider.Endpoint.
func (e *endpoint) Deregister(h provider.Handle) error {
	e.lock()
	i := e.table.Find(h)
	if i == regtable.None {
		e.unlock()
		return provider.StatusAccess
	}
	s := &e.table.Slots[i]
	if s.Posted != 0 && !(e.gate&gateOver != 0 && e.settled()) {
		e.unlock()
		return provider.StatusBusy
	}
	// From here on no access begins. One under way looks here between pieces, so the wait is short.
	s.State = regtable.Revoked
	for e.table.Slots[i].Access != 0 {
		e.wait()
	}
	s = &e.table.Slots[i]
	b, common := s.Bytes, s.Common
	e.rq.room = nil                               // perhaps it is there
	released := e.life == lifeReleased && !common // Close has given it back
	e.table.Remove(i)
	e.unlock()
	if !released {
		e.prov.proxy.release(b, common)
	}
	return nil
}

// release ends every registration at Close. Handles stay known until they are deregistered, and so
// does common memory. Called with the lock held.
func (e *endpoint) release() {
	e.life = lifeReleased
	e.rq.room = nil
	for i := range e.table.Slots {
		if s := &e.table.Slots[i]; s.State != regtable.Free {
			s.Rights, s.Posted = 0, 0
			if !s.Common {
				e.prov.proxy.release(s.Bytes, false)
				s.Bytes = nil
			}
		}
	}
}
