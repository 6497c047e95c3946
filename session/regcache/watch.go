package regcache

import (
	"slices"
	"sync"
)

// Watch declares that the application calls Forget, or stop, before b changes what memory it is: before it is unmapped,
// remapped or freed, and while no Read or Write uses it. b is not of the Go heap (that is watched
// without), but mapped, allocated by C or a global variable. From now on registrations of memory within b are kept.
// stop ends this and calls Forget.
func Watch(b []byte) (stop func()) {
	x := extentOf(b)
	process.mu.Lock()
	process.watched = append(process.watched, x)
	process.mu.Unlock()
	return sync.OnceFunc(func() {
		process.mu.Lock()
		// Declarations of the same memory are alike, so that it does not matter which one goes.
		i := slices.Index(process.watched, x)
		process.watched = slices.Delete(process.watched, i, i+1)
		process.mu.Unlock()
		Forget(b) // after the declaration has gone, see Get
	})
}

// Forget gives up the registrations of b in all caches of the process, and in those of the providers. It is to be
// called before memory that was declared with Watch goes away or is mapped anew.
func Forget(b []byte) {
	for _, c := range process.snapshot() {
		c.Invalidate(b)
	}
}

// process has the caches of the process, and the memory declared to it.
var process = registry{caches: map[*Cache]struct{}{}}

type registry struct {
	mu      sync.Mutex // innermost, and not held together with that of a cache
	caches  map[*Cache]struct{}
	watched []extent
}

func (r *registry) add(c *Cache) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.caches[c] = struct{}{}
}

func (r *registry) remove(c *Cache) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.caches, c)
}

func (r *registry) snapshot() []*Cache {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*Cache, 0, len(r.caches))
	for c := range r.caches {
		all = append(all, c)
	}
	return all
}

// watches reports whether x lies within declared memory.
func (r *registry) watches(x extent) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.watched, func(w extent) bool { return w.covers(x) })
}

// extent is a range of addresses. It does not keep the memory alive.
type extent struct{ lo, hi uintptr }

func (x extent) len() int               { return int(x.hi - x.lo) }
func (x extent) covers(y extent) bool   { return x.lo <= y.lo && y.hi <= x.hi }
func (x extent) overlaps(y extent) bool { return x.lo < y.hi && y.lo < x.hi }

// extentOf returns where b is.
func extentOf(b []byte) extent {
	if len(b) == 0 {
		return extent{}
	}
	lo := address(&b[0])
	return extent{lo, lo + uintptr(len(b))}
}
