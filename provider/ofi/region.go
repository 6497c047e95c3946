//go:build ofi && cgo && linux

package ofi

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"syscall"
	"time"

	"sansock/provider"
)

// registration is memory of one endpoint. It is guarded by the endpoint's mutex; while the library works on it, it is not
// among the endpoint's.
type registration struct {
	bytes   []byte
	mapping []byte // what Allocate has mapped
	memory  memory // the library's; none where it needs none
	pin     runtime.Pinner
	exposed bool
	posted  int // operations that use it
}

// span is the part b of the memory.
func (r *registration) span(b []byte) span {
	s := spanOf(b)
	s.desc = r.memory.desc
	return s
}

// release ends the registration with the fabric. Allocated memory stays.
func (r *registration) release() {
	if r.memory.c != nil {
		r.memory.deregister()
		r.memory = memory{}
	}
	r.pin.Unpin()
	if r.mapping == nil {
		r.bytes = nil
	}
}

// find returns the registration that a segment lies in, or nil. Called with mu held.
func (e *endpoint) find(s *provider.Segment) *registration {
	if r := e.regs[s.Handle]; r != nil && within(r.bytes, s.Bytes) {
		return r
	}
	return nil
}

// Allocate implements provider.Endpoint. The memory is mapped, as Go's own may not outlive an endpoint that is closed.
func (e *endpoint) Allocate(size int) (provider.Region, error) {
	page := syscall.Getpagesize()
	m, err := syscall.Mmap(-1, 0, (max(size, 1)+page-1)/page*page, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANONYMOUS)
	if err != nil {
		return provider.Region{}, e.prov.failure("register", provider.StatusNoMemory, err)
	}
	r, err := e.register(&registration{bytes: m[:size:size], mapping: m}, 0)
	if err != nil {
		syscall.Munmap(m)
	}
	return r, err
}

// Register implements provider.Endpoint.
func (e *endpoint) Register(b []byte) (provider.Region, error) {
	return e.register(&registration{bytes: b}, 0)
}

// Expose implements provider.Endpoint.
func (e *endpoint) Expose(b []byte, rights provider.Rights) (provider.Region, error) {
	if rights == 0 || rights&^(provider.RightRead|provider.RightWrite) != 0 {
		return provider.Region{}, provider.StatusUnsupported
	}
	return e.register(&registration{bytes: b, exposed: true}, rights)
}

// register registers r with the library where that is needed, and enters it.
func (e *endpoint) register(r *registration, rights provider.Rights) (provider.Region, error) {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return provider.Region{}, provider.StatusClosed
	}
	e.busy++
	e.mu.Unlock()
	err := e.pinned(r, rights)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leave()
	if err == nil && e.closed {
		r.release()
		err = provider.StatusClosed
	}
	if err != nil {
		return provider.Region{}, err
	}
	if e.handle++; e.handle == 0 {
		e.handle++ // means none
	}
	e.regs[e.handle] = r
	region := provider.Region{Bytes: r.bytes, Handle: e.handle}
	if r.exposed {
		if e.in.virtual {
			binary.LittleEndian.PutUint64(region.Descriptor[0:], uint64(spanOf(r.bytes).mem))
		}
		binary.LittleEndian.PutUint64(region.Descriptor[8:], r.memory.key)
	}
	return region, nil
}

// pinned pins the memory of r and registers it with the library.
func (e *endpoint) pinned(r *registration, rights provider.Rights) error {
	if len(r.bytes) == 0 {
		return nil
	}
	r.pin.Pin(&r.bytes[0])
	if !r.exposed && !e.in.registers {
		return nil
	}
	var err error
	for range keyTries {
		// Where keys are ours to choose they cannot be guessed.
		r.memory, err = e.c.register(spanOf(r.bytes), rights&provider.RightRead != 0, rights&provider.RightWrite != 0,
			rand.Uint64()|1<<63)
		if codeOf(err) != codeKeyTaken {
			break
		}
	}
	if err != nil {
		r.memory = memory{}
		r.pin.Unpin()
		return e.prov.failure("register", registerStatus(err), err)
	}
	return nil
}

// keyTries bounds how often a key is chosen.
const keyTries = 4

// Deregister implements provider.Endpoint.
func (e *endpoint) Deregister(h provider.Handle) error {
	e.mu.Lock()
	r := e.regs[h]
	switch {
	case r == nil:
		e.mu.Unlock()
		return provider.StatusAccess
	case r.posted > 0:
		e.mu.Unlock()
		return provider.StatusBusy
	}
	delete(e.regs, h)
	exposed := r.exposed && r.memory.c != nil
	e.busy++
	e.mu.Unlock()
	if r.memory.c != nil {
		r.memory.deregister()
		r.memory = memory{}
	}
	e.mu.Lock()
	e.leave()
	e.mu.Unlock()
	if exposed && e.fenced() {
		e.fence()
	}
	r.release()
	if r.mapping != nil {
		syscall.Munmap(r.mapping)
	}
	return nil
}

// fenced reports whether an access that began before a registration was closed may still be under way afterwards. The tcp
// provider looks at the registration when the head of a transfer comes, and then moves its bytes as they come.
func (e *endpoint) fenced() bool { return e.prov.kind == fabricTCP }

// fenceKey names the bytes that every endpoint exposes for the fences of its peer. Other keys have the highest bit.
const fenceKey = 1

// fenceTime is how long a peer may take to let go of memory before that costs the connection. Tests shorten it.
var fenceTime = 5 * time.Second

// fence returns when every access of the peer that began before is over. It reads from the peer. All that the peer sent
// before its answer has then arrived, and all that we sent before the question, the answers to its own reads among it, has
// left: a stream has no other order, whatever the peer is up to. One that does not answer loses the connection.
func (e *endpoint) fence() {
	e.fencing.Lock()
	defer e.fencing.Unlock()
	e.mu.Lock()
	if e.over {
		e.mu.Unlock()
		<-e.down
		return
	}
	over := make(chan provider.Status, 1)
	i := e.enter(provider.OpRead, 0, nil)
	e.slots[i].fence = over
	e.begin()
	ret := e.c.rread(e.c.own(pageFence, 8), 0, fenceKey, uint64(i)+1)
	e.mu.Lock()
	e.leave()
	if ret != 0 {
		e.sending--
		e.drop(i)
		e.mu.Unlock()
		e.lose(provider.StatusLink)
		<-e.down
		return
	}
	e.mu.Unlock()
	limit := time.NewTimer(fenceTime)
	defer limit.Stop()
	select {
	case status := <-over:
		if status == provider.StatusOK {
			return
		}
	case <-limit.C:
		e.lose(provider.StatusTimeout)
	}
	<-e.down
}
