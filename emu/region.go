package emu

import (
	"encoding/binary"
	"math/rand/v2"

	"sansock/provider"
)

// A Handle is the generation of a slot above its index, xored with the salt of the endpoint so that the handles of one
// endpoint mean nothing to another. Generations of a slot only rise, and a slot whose generations are used up
// is retired, so that no handle ever returns.
const (
	indexBits     = 24
	maxIndex      = 1<<indexBits - 1
	maxGeneration = 1<<(64-indexBits) - 1
)

// none is the index of no slot.
const none = -1

type slotState uint8

const (
	slotFree slotState = iota
	slotLive
	slotRevoked // Deregister waits for the last access
)

// slot is one entry of the registration table.
type slot struct {
	bytes  []byte
	key    uint64 // of the descriptor
	gen    uint64 // of the registration, or of the last one
	posted int32  // operations of our own that name it
	access int32  // accesses of the peer under way
	next   int32  // in the free list
	rights provider.Rights
	state  slotState
	common bool // allocated by the proxy driver
}

// table has the registrations of one endpoint. The endpoint's mutex guards it. Slots are named by index, as the
// slice moves when it grows.
type table struct {
	slots []slot
	free  int32 // first free slot plus one
	live  int32
}

// add makes a registration.
func (t *table) add(salt uint64, b []byte, rights provider.Rights, common bool) (provider.Region, bool) {
	i := t.free - 1
	if i == none {
		if len(t.slots) > maxIndex {
			return provider.Region{}, false
		}
		i = int32(len(t.slots))
		t.slots = append(t.slots, slot{})
	} else {
		t.free = t.slots[i].next
	}
	s := &t.slots[i]
	s.gen++
	h := (s.gen<<indexBits | uint64(i)) ^ salt
	if h == 0 { // the zero Handle is none
		s.gen++
		h = (s.gen<<indexBits | uint64(i)) ^ salt
	}
	s.bytes, s.rights, s.common, s.state = b, rights, common, slotLive
	t.live++
	r := provider.Region{Bytes: b, Handle: provider.Handle(h)}
	if rights != 0 {
		// The package-level generator is ChaCha8 seeded by the system: a peer that has seen any number of keys
		// cannot guess the next, and its first wrong guess ends the connection.
		s.key = rand.Uint64()
		binary.LittleEndian.PutUint64(r.Descriptor[0:], s.key)
		binary.LittleEndian.PutUint64(r.Descriptor[8:], uint64(i))
		binary.LittleEndian.PutUint64(r.Descriptor[16:], s.gen)
	}
	return r, true
}

// find returns the index of a live registration, or none.
func (t *table) find(salt uint64, h provider.Handle) int32 {
	v := uint64(h) ^ salt
	i := v & maxIndex
	if i < uint64(len(t.slots)) && t.slots[i].gen == v>>indexBits && t.slots[i].state == slotLive {
		return int32(i)
	}
	return none
}

// local finds the registration that a segment names, and the segment's place in it.
func (t *table) local(salt uint64, s *provider.Segment) (i int32, off int, ok bool) {
	if i = t.find(salt, s.Handle); i == none {
		return none, 0, false
	}
	off, ok = within(t.slots[i].bytes, s.Bytes)
	return i, off, ok
}

// remote finds the exposed memory that a peer's descriptor names. Everything in it may be forged.
func (t *table) remote(d *provider.Descriptor, right provider.Rights, off uint64, n int) (int32, bool) {
	i := binary.LittleEndian.Uint64(d[8:])
	if i >= uint64(len(t.slots)) {
		return none, false
	}
	s := &t.slots[i]
	if s.state != slotLive || s.rights&right == 0 || s.gen != binary.LittleEndian.Uint64(d[16:]) ||
		s.key != binary.LittleEndian.Uint64(d[0:]) {
		return none, false
	}
	size := uint64(len(s.bytes))
	if off > size || uint64(n) > size-off {
		return none, false
	}
	return int32(i), true
}

// remove frees a slot.
func (t *table) remove(i int32) {
	s := &t.slots[i]
	s.bytes, s.key, s.rights, s.posted, s.state = nil, 0, 0, 0, slotFree
	t.live--
	if s.gen < maxGeneration-1 { // two may be used by one add
		s.next, t.free = t.free, i+1
	}
}

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
	if e.closed {
		return provider.Region{}, provider.StatusClosed
	}
	r, ok := e.table.add(e.salt, b, rights, common)
	if !ok {
		return r, provider.StatusLimit
	}
	return r, nil
}

// Deregister implements provider.Endpoint.
func (e *endpoint) Deregister(h provider.Handle) error {
	e.lock()
	i := e.table.find(e.salt, h)
	if i == none {
		e.unlock()
		return provider.StatusAccess
	}
	s := &e.table.slots[i]
	if s.posted != 0 && !(e.gate&gateOver != 0 && e.settled()) {
		e.unlock()
		return provider.StatusBusy
	}
	// From here on no access begins. One under way looks here between pieces, so the wait is short.
	s.state = slotRevoked
	for e.table.slots[i].access != 0 {
		e.wait()
	}
	s = &e.table.slots[i]
	b, common := s.bytes, s.common
	e.room = nil                      // perhaps it is there
	released := e.released && !common // Close has given it back
	e.table.remove(i)
	e.unlock()
	if !released {
		e.prov.proxy.release(b, common)
	}
	return nil
}

// release ends every registration at Close. Handles stay known until they are deregistered, and so does common memory.
// Called with the lock held.
func (e *endpoint) release() {
	e.released = true
	e.room = nil
	for i := range e.table.slots {
		if s := &e.table.slots[i]; s.state != slotFree {
			s.rights, s.posted = 0, 0
			if !s.common {
				e.prov.proxy.release(s.bytes, false)
				s.bytes = nil
			}
		}
	}
}
