//go:build linux

package shm

import (
	"encoding/binary"
	"math/rand/v2"

	"sansock/provider"
)

// A Handle is the generation of a slot above its index, xored with the salt of the endpoint, so that the handles of one
// endpoint mean nothing to another. Generations of a slot only rise.
const (
	indexBits = 24
	maxIndex  = 1<<indexBits - 1
	none      = -1
)

// slot is one registration.
type slot struct {
	bytes  []byte
	blk    block // the arena's memory, if it is from Allocate
	key    uint64
	gen    uint64
	posted int32 // own operations that name it
	next   int32 // in the free list
	rights provider.Rights
	live   bool
	common bool
}

// table has the registrations of one endpoint, whose mutex guards it.
type table struct {
	slots []slot
	free  int32 // the first free slot plus one
	salt  uint64
}

func (t *table) add(b []byte, rights provider.Rights, blk block, common bool) (provider.Region, bool) {
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
	h := (s.gen<<indexBits | uint64(i)) ^ t.salt
	if h == 0 { // the zero Handle is none
		s.gen++
		h = (s.gen<<indexBits | uint64(i)) ^ t.salt
	}
	s.bytes, s.rights, s.blk, s.common, s.live = b, rights, blk, common, true
	r := provider.Region{Bytes: b, Handle: provider.Handle(h)}
	if rights != 0 {
		// The generator is seeded by the system, and cannot be foretold from what has come out of it.
		s.key = rand.Uint64()
		binary.LittleEndian.PutUint64(r.Descriptor[0:], s.key)
		binary.LittleEndian.PutUint64(r.Descriptor[8:], uint64(i))
		binary.LittleEndian.PutUint64(r.Descriptor[16:], s.gen)
	}
	return r, true
}

// find returns the index of a live registration, or none.
func (t *table) find(h provider.Handle) int32 {
	v := uint64(h) ^ t.salt
	i := v & maxIndex
	if i < uint64(len(t.slots)) && t.slots[i].live && t.slots[i].gen<<indexBits>>indexBits == v>>indexBits {
		return int32(i)
	}
	return none
}

// local finds the registration that a segment names, and the segment's place in it.
func (t *table) local(s *provider.Segment) (i int32, off int, ok bool) {
	if i = t.find(s.Handle); i == none {
		return none, 0, false
	}
	off, ok = within(t.slots[i].bytes, s.Bytes)
	return i, off, ok
}

// remote finds the n bytes that a peer's descriptor names, all of which may be forged.
func (t *table) remote(d *[3]uint64, right provider.Rights, off uint64, n int) ([]byte, bool) {
	if d[1] >= uint64(len(t.slots)) {
		return nil, false
	}
	s := &t.slots[d[1]]
	size := uint64(len(s.bytes))
	if !s.live || s.rights&right == 0 || s.gen != d[2] || s.key != d[0] || off > size || uint64(n) > size-off {
		return nil, false
	}
	return s.bytes[off : off+uint64(n)], true
}

// remove frees a slot, for ever if its handles are used up.
func (t *table) remove(i int32) {
	s := &t.slots[i]
	*s = slot{gen: s.gen}
	if s.gen < 1<<(64-indexBits)-2 {
		s.next, t.free = t.free, i+1
	}
}
