package regcache

import (
	"runtime"
	"weak"

	"sansock/provider"
)

// identity tells whether the memory of an entry is still the memory that was registered. The zero identity cannot.
type identity struct {
	declared bool // by Watch: Forget takes the entry out

	// Of an object in the Go heap. The runtime clears the weak pointer before it uses the object's memory for
	// anything else, and a new object at the same address does not bring it back. The cleanup runs some time
	// later: it only ends the registration early.
	first   weak.Pointer[byte]
	cleanup runtime.Cleanup
}

// identify returns the identity of b, the memory x that c has registered as h, if it has one. The caller keeps b.
func identify(b []byte, x extent, c *Cache, h provider.Handle) (id identity, ok bool) {
	if len(b) == 0 {
		return id, false
	}
	if id.cleanup, ok = whenGone(&b[0], registration{c, h}); ok {
		id.first = weak.Make(&b[0])
		return id, true
	}
	id.declared = process.watches(x)
	return id, id.declared
}

// unchanged reports whether the memory, which begins at lo, is still what it was.
func (id *identity) unchanged(lo uintptr) bool { return id.declared || address(id.first.Value()) == lo }

// unwatch lets go of the object.
func (id *identity) unwatch() {
	p := id.first.Value() // Stop works surely only while the object lives
	id.cleanup.Stop()
	runtime.KeepAlive(p)
}

// registration is what a cleanup gives up. It does not hold the memory, or that would never go away.
type registration struct {
	c *Cache
	h provider.Handle
}

// whenGone arranges for r to be given up some time after the object at p has gone. It reports whether p points into an
// object of the Go heap: weak.Make may be called for these only, as it ends the process for others.
func whenGone(p *byte, r registration) (cleanup runtime.Cleanup, ok bool) {
	// AddCleanup panics for memory that is not the collector's (foreign, stack, arena). Then ok stays false.
	defer func() { _ = recover() }()
	cleanup = runtime.AddCleanup(p, func(r registration) { r.c.gone(r.h) }, r)
	// For a global variable it returns a cleanup that does nothing. With GODEBUG=sbrk=1 it does so for any
	// memory, so that such a one proves nothing.
	return cleanup, cleanup != runtime.Cleanup{}
}
