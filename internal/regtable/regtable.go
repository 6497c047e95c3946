// Package regtable has the registrations of an endpoint whose device is software.
package regtable

import (
	"encoding/binary"
	"math/rand/v2"

	"sansock/provider"
)

// A Handle is the generation of a slot above its index, xored with the salt of the table, so that the handles of one
// endpoint mean nothing to another. Generations of a slot only rise, and a slot whose generations are used up
// is retired, so that no handle ever returns.
const (
	indexBits     = 24
	maxIndex      = 1<<indexBits - 1
	maxGeneration = 1<<(64-indexBits) - 1
)

// None is the index of no slot.
const None = -1

// State is the state of a slot.
type State uint8

const (
	Free State = iota
	Live
	Revoked // its handle means nothing any more, but it is not free yet
)

// Slot is a registration. The table looks at Bytes, Rights and State; the others are the owner's.
type Slot struct {
	Bytes  []byte
	Place  uint64 // of Common memory
	Posted int32  // operations of the endpoint that name it
	Access int32  // accesses of the peer under way
	Rights provider.Rights
	State  State
	Common bool // the endpoint has allocated it

	next int32  // in the free list
	key  uint64 // of the descriptor
	gen  uint64 // of the registration, or of the last one
}

// Table has the registrations of one endpoint, whose lock guards it. The zero Table is empty; Salt is set before the first
// Add. Slots are named by index, as the slice moves when it grows.
type Table struct {
	Slots []Slot
	Salt  uint64
	free  int32 // the first free slot plus one
	used  int32
}

// Len returns the number of slots that are not free.
func (t *Table) Len() int { return int(t.used) }

// Add makes a registration, in slot i. It fails where there are no slots left.
func (t *Table) Add(b []byte, rights provider.Rights) (i int32, r provider.Region, ok bool) {
	if i = t.free - 1; i == None {
		if len(t.Slots) > maxIndex {
			return None, r, false
		}
		i = int32(len(t.Slots))
		t.Slots = append(t.Slots, Slot{})
	} else {
		t.free = t.Slots[i].next
	}
	s := &t.Slots[i]
	s.gen++
	h := t.handle(i)
	if h == 0 { // which is none
		s.gen++
		h = t.handle(i)
	}
	s.Bytes, s.Rights, s.State = b, rights, Live
	t.used++
	r = provider.Region{Bytes: b, Handle: h}
	if rights != 0 {
		// The package-level generator is ChaCha8 seeded by the system: a peer that has seen any number of keys
		// cannot guess the next, and its first wrong guess ends the connection.
		s.key = rand.Uint64()
		binary.LittleEndian.PutUint64(r.Descriptor[0:], s.key)
		binary.LittleEndian.PutUint64(r.Descriptor[8:], uint64(i))
		binary.LittleEndian.PutUint64(r.Descriptor[16:], s.gen)
	}
	return i, r, true
}

func (t *Table) handle(i int32) provider.Handle {
	return provider.Handle((t.Slots[i].gen<<indexBits | uint64(i)) ^ t.Salt)
}

// Find returns the index of a live registration, or None.
func (t *Table) Find(h provider.Handle) int32 {
	v := uint64(h) ^ t.Salt
	i := v & maxIndex
	if i < uint64(len(t.Slots)) && t.Slots[i].gen == v>>indexBits && t.Slots[i].State == Live {
		return int32(i)
	}
	return None
}

// Local finds the registration that a segment names, and the segment's place in it.
func (t *Table) Local(s *provider.Segment) (i int32, off int, ok bool) {
	if i = t.Find(s.Handle); i == None {
		return None, 0, false
	}
	off, ok = within(t.Slots[i].Bytes, s.Bytes)
	return i, off, ok
}

// Words are the words of a descriptor, for Remote.
func Words(d *provider.Descriptor) (w [3]uint64) {
	for i := range w {
		w[i] = binary.LittleEndian.Uint64(d[8*i:])
	}
	return w
}

// Remote finds the exposed memory of which a peer's descriptor means n bytes at off. Everything in it may be forged.
func (t *Table) Remote(d [3]uint64, right provider.Rights, off uint64, n int) (i int32, ok bool) {
	if d[1] >= uint64(len(t.Slots)) {
		return None, false
	}
	s := &t.Slots[d[1]]
	size := uint64(len(s.Bytes))
	if s.State != Live || s.Rights&right == 0 || s.gen != d[2] || s.key != d[0] || off > size || uint64(n) > size-off {
		return None, false
	}
	return int32(d[1]), true
}

// Remove frees a slot, for ever if its handles are used up.
func (t *Table) Remove(i int32) {
	s := &t.Slots[i]
	*s = Slot{gen: s.gen}
	t.used--
	if s.gen < maxGeneration-1 { // two may be used by one Add
		s.next, t.free = t.free, i+1
	}
}
