//go:build linux

package shm

import (
	"sansock/internal/regtable"
	"sansock/provider"
)

// Allocate implements provider.Endpoint.
func (e *endpoint) Allocate(size int) (provider.Region, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.refusal(); s != provider.StatusOK {
		return provider.Region{}, s
	}
	if size < 0 || size > maxBlock {
		return provider.Region{}, provider.StatusNoMemory
	}
	if e.mem.bytes+size > e.l.node.connMemory || e.l.arena.full(size) {
		return provider.Region{}, provider.StatusLimit
	}
	b, fresh, err := e.l.arena.alloc(size)
	if err != nil {
		return provider.Region{}, err
	}
	if !fresh {
		clear(b.mem)
	}
	i, r, ok := e.table.Add(b.mem[:size], 0)
	if !ok {
		e.l.arena.release(b)
		return r, provider.StatusLimit
	}
	s := &e.table.Slots[i]
	s.Common, s.Place = true, uint64(b.at)
	r.Bytes = r.Bytes[:size:size]
	e.mem.bytes += b.size
	return r, nil
}

// Register implements provider.Endpoint.
func (e *endpoint) Register(b []byte) (provider.Region, error) { return e.register(b, 0) }

// Expose implements provider.Endpoint.
func (e *endpoint) Expose(b []byte, rights provider.Rights) (provider.Region, error) {
	if rights == 0 || rights&^(provider.RightRead|provider.RightWrite) != 0 {
		return provider.Region{}, provider.StatusUnsupported
	}
	return e.register(b, rights)
}

func (e *endpoint) register(b []byte, rights provider.Rights) (provider.Region, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return provider.Region{}, provider.StatusClosed
	}
	_, r, ok := e.table.Add(b, rights)
	if !ok {
		return r, provider.StatusLimit
	}
	return r, nil
}

// Deregister implements provider.Endpoint. The peer's accesses are made by this process with mu
// held, so none is under way.
func (e *endpoint) Deregister(h provider.Handle) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := e.table.Find(h)
	if i == regtable.None {
		return provider.StatusAccess
	}
	s := &e.table.Slots[i]
	if s.Posted != 0 {
		return provider.StatusBusy
	}
	if s.Common {
		e.free(common(s))
	}
	e.table.Remove(i)
	return nil
}

// alloc takes a block that counts for this connection. Called with mu held.
func (e *endpoint) alloc(n int) (block, error) {
	if e.mem.bytes+n > e.l.node.connMemory {
		return block{}, provider.StatusLimit
	}
	b, _, err := e.l.arena.alloc(n)
	if err == nil {
		e.mem.bytes += b.size
	}
	return b, err
}

// free gives a block back as soon as the peer does not use it any more. Called with mu held.
func (e *endpoint) free(b block) {
	e.mem.bytes -= b.size
	if (e.over() || e.holds(b)) && e.stage != stageGone {
		e.mem.stale = append(e.mem.stale, b)
		return
	}
	e.l.arena.release(b)
}

func bounced(r *recv) block { return block{r.at, rounded(len(r.bounce)), r.bounce} }

// common is the block of a registration from Allocate, all of which its Bytes have as their
// capacity.
func common(s *regtable.Slot) block {
	n := cap(s.Bytes)
	return block{ptr(s.Place), n, s.Bytes[:n]}
}

// holds reports whether the peer may still be writing into b. Called with mu held.
func (e *endpoint) holds(b block) bool {
	return e.mem.loose != 0 && b.at <= e.mem.loose && e.mem.loose < b.at+ptr(b.size)
}

// tighten notes that the peer has sent something after the open message that was taken last. Called
// with mu held, before the end.
func (e *endpoint) tighten() {
	e.mem.loose = 0
	for _, b := range e.mem.stale {
		e.l.arena.release(b)
	}
	e.mem.stale = e.mem.stale[:0]
}
