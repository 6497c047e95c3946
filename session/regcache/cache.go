// Package regcache keeps local registrations of memory for reuse, because making one costs as much as moving the
// memory (WSD: "Caching Registered Memory").
//
// Only what Endpoint.Register returned is kept. The peer cannot reach that, ever. Memory that the peer may reach, from
// Endpoint.Expose, is not cached: Deregister revokes it at once. So memory stays registered locally, ready to be
// used again, while it is out of the peer's reach the moment it is deregistered there.
//
// A registration holds on to the pages that were behind an address when it was made, and an address alone does not say
// whether they still are: the allocator hands it out again, a mapping is replaced. An entry is therefore used again only
// while the memory is known to be the same. For memory of the Go heap that is a weak pointer to its first byte, which
// resolves as long as the same object is there. For other memory (mmap, C, global variables) it is the word of
// the application, which declares it with Watch and says with Forget, or the function that Watch returned, when it goes
// away. What is neither is registered for one transfer at a time.
package regcache

import (
	"math"
	"reflect"
	"runtime"
	"slices"
	"sync"

	"sansock/provider"
)

// Registrar is the part of a provider.Endpoint that a Cache uses.
type Registrar interface {
	Register(b []byte) (provider.Region, error)
	Deregister(h provider.Handle) error
	Extension(id provider.GUID) (any, error)
}

// Limits bound what a cache keeps. Kept registrations count while they are in use too, but are not given up then, so
// that these alone can exceed a bound. With a limit of 0 nothing is kept: the cache is off.
type Limits struct {
	Entries int // registrations; each use looks through them, so hundreds, not more
	Bytes   int // their lengths together
}

// Stats counts what a cache has done, and what it has now.
type Stats struct {
	Hits      uint64 // uses of memory that was registered already
	Misses    uint64 // uses that needed a registration
	Evictions uint64 // registrations given up to keep within a limit
	Refused   uint64 // registrations that the provider would not end; they last until its endpoint is closed

	InUse  int // registrations in use
	Cached int // registrations kept that nobody uses
	Bytes  int // memory registered by either
}

// Cache has the local registrations of one endpoint. Its methods may be called from any goroutine. Close must be called,
// before or after the endpoint's own.
type Cache struct {
	ep     Registrar
	below  provider.CacheInvalidator // the provider's own cache, or nil
	limits Limits

	// mu is innermost: neither the provider, which may be slow, nor another lock is called for with it held.
	//
	// An entry is taken out of entries, under mu, before its registration is ended, and Get counts a user under mu in
	// an entry it found there. So a registration that Get returns lasts until Put.
	mu        sync.Mutex
	released  sync.Cond // releasing has become 0
	entries   []entry   // most recently used first
	kept      int       // number of the kept ones
	bytes     int       // their memory
	epoch     uint64    // number of invalidations
	releasing int       // registrations taken out, and not ended yet
	closed    bool
	stats     Stats
}

// entry is a registration. It does not keep the memory alive.
type entry struct {
	extent
	handle provider.Handle
	users  int
	kept   bool // used again, else ended by the last Put. Not kept and without a user is never in entries
	identity
}

// New returns an empty cache of registrations with ep.
func New(ep Registrar, l Limits) *Cache {
	c := &Cache{ep: ep, limits: l}
	c.released.L = &c.mu
	if x, err := ep.Extension(provider.GUIDCacheCallback); err == nil {
		c.below, _ = x.(provider.CacheInvalidator)
	}
	process.add(c)
	return c
}

// Get returns the handle of a registration that covers b, for local Segments within b. The caller keeps b, and it stays
// what it is, until the operations that use the handle have completed and the handle was given to Put, once for each
// Get. Errors are those of Endpoint.Register, tried once more after giving up what is kept when it hit a limit,
// and StatusClosed.
func (c *Cache) Get(b []byte) (provider.Handle, error) {
	defer runtime.KeepAlive(b)
	x := extentOf(b)
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return 0, provider.StatusClosed
	}
	if i := c.cover(x); i >= 0 {
		e := c.entries[i]
		e.users++
		copy(c.entries[1:], c.entries[:i])
		c.entries[0] = e
		c.stats.Hits++
		c.mu.Unlock()
		return e.handle, nil
	}
	c.stats.Misses++
	epoch := c.epoch
	c.mu.Unlock()

	h, err := c.register(b)
	if err != nil {
		return 0, err
	}
	e := entry{extent: x, handle: h, users: 1}
	if c.limits.Entries > 0 && len(b) <= c.limits.Bytes {
		e.identity, e.kept = identify(b, x, c, h)
	}
	c.mu.Lock()
	// Memory that was given up while it was being registered may have been replaced before or after. This
	// includes that its declaration ended, which comes before the invalidation and was looked up after epoch.
	e.kept = e.kept && c.epoch == epoch
	if e.kept {
		c.kept++
		c.bytes += len(b)
	}
	c.entries = slices.Insert(c.entries, 0, e)
	out := c.evict(c.limits)
	c.mu.Unlock()
	c.release(out)
	return h, nil
}

// register makes a registration.
func (c *Cache) register(b []byte) (provider.Handle, error) {
	if c.below != nil {
		// The provider's cache goes by address, and cannot know whether this is the memory that it was. We do not
		// either, or there would be an entry.
		c.below.InvalidateCache(b)
	}
	r, err := c.ep.Register(b)
	if s := provider.StatusOf(err); (s == provider.StatusLimit || s == provider.StatusNoMemory) && c.Relieve(len(b)) {
		r, err = c.ep.Register(b)
	}
	return r.Handle, err
}

// Put ends one use of a handle that Get returned. Handles that are not in use are ignored.
func (c *Cache) Put(h provider.Handle) {
	var one [1]entry
	out := one[:0]
	c.mu.Lock()
	if i := c.find(h); i >= 0 && c.entries[i].users > 0 {
		c.entries[i].users--
		out = c.takeUnused(i, out)
		out = append(out, c.evict(c.limits)...)
	}
	c.mu.Unlock()
	c.release(out)
}

// Invalidate gives up every registration that overlaps b. Those in use end with their last Put, and are not used
// again. It also tells the provider, if that has a cache of its own.
func (c *Cache) Invalidate(b []byte) {
	if len(b) == 0 {
		return
	}
	c.invalidate(extentOf(b))
	if c.below != nil {
		c.below.InvalidateCache(b)
	}
}

func (c *Cache) invalidate(x extent) {
	var out []entry
	c.mu.Lock()
	c.epoch++
	for i := len(c.entries) - 1; i >= 0; i-- {
		if c.entries[i].overlaps(x) {
			c.unkeep(i)
			out = c.takeUnused(i, out)
		}
	}
	c.mu.Unlock()
	c.release(out)
}

// gone acts on the end of the memory of a registration.
func (c *Cache) gone(h provider.Handle) {
	var one [1]entry
	out := one[:0]
	c.mu.Lock()
	if i := c.find(h); i >= 0 {
		c.unkeep(i)
		out = c.takeUnused(i, out)
	}
	c.mu.Unlock()
	c.release(out)
}

// Relieve gives up registrations that nobody uses, of n bytes or more, least recently used first: those of this cache
// and, where they are not enough, of the others of the same kind of endpoint. It reports whether there were any, so that
// what the provider refused for a limit or for lack of memory is worth a second try.
func (c *Cache) Relieve(n int) bool {
	freed := c.shed(n)
	if freed >= n && freed > 0 {
		return true
	}
	for _, o := range process.snapshot() {
		// A limit is shared with other endpoints of the provider, but not with other providers.
		if o != c && reflect.TypeOf(o.ep) == reflect.TypeOf(c.ep) {
			if freed += o.shed(n - freed); freed >= n && freed > 0 {
				break
			}
		}
	}
	return freed > 0
}

// shed gives up one unused registration, and more up to n bytes. It returns how many bytes there were.
func (c *Cache) shed(n int) (freed int) {
	c.mu.Lock()
	out := c.evict(Limits{Entries: c.kept - 1, Bytes: c.bytes - n})
	c.mu.Unlock()
	for i := range out {
		freed += out[i].len()
	}
	c.release(out)
	return freed
}

// Close ends every registration that nobody uses; the others end with their last Put. When it returns, the
// former have ended, and Get fails. Closing again does nothing.
func (c *Cache) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	process.remove(c)
	c.invalidate(extent{0, math.MaxUint})
	c.mu.Lock()
	for c.releasing > 0 {
		c.released.Wait()
	}
	c.mu.Unlock()
}

// Stats returns the counts.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	for i := range c.entries {
		e := &c.entries[i]
		if s.Bytes += e.len(); e.users > 0 {
			s.InUse++
		} else {
			s.Cached++
		}
	}
	return s
}

// The rest, up to release, is called with mu held.

// cover finds an entry that can be used for x. As the caller of Get holds an object at x, and the entry's is still there,
// the two are one.
func (c *Cache) cover(x extent) int {
	for i := range c.entries {
		if e := &c.entries[i]; e.kept && e.covers(x) && e.unchanged(e.lo) {
			return i
		}
	}
	return -1
}

func (c *Cache) find(h provider.Handle) int {
	for i := range c.entries {
		if c.entries[i].handle == h {
			return i
		}
	}
	return -1
}

// unkeep makes entry i one that Get does not find.
func (c *Cache) unkeep(i int) {
	if e := &c.entries[i]; e.kept {
		e.kept = false
		c.kept--
		c.bytes -= e.len()
	}
}

// takeUnused moves entry i to out if it is neither kept nor in use.
func (c *Cache) takeUnused(i int, out []entry) []entry {
	if e := c.entries[i]; !e.kept && e.users == 0 {
		c.entries = slices.Delete(c.entries, i, i+1)
		c.releasing++
		out = append(out, e)
	}
	return out
}

// evict takes out what nobody uses, least recently used first, until no more is kept than l.
func (c *Cache) evict(l Limits) (out []entry) {
	for i := len(c.entries) - 1; i >= 0 && (c.kept > l.Entries || c.bytes > l.Bytes); i-- {
		if c.entries[i].users == 0 {
			c.unkeep(i)
			out = c.takeUnused(i, out)
			c.stats.Evictions++
		}
	}
	return out
}

// release ends the registrations that were taken out. It is called without mu.
func (c *Cache) release(out []entry) {
	if len(out) == 0 {
		return
	}
	refused := 0
	for i := range out {
		out[i].unwatch()
		if c.ep.Deregister(out[i].handle) != nil {
			refused++
		}
	}
	c.mu.Lock()
	c.stats.Refused += uint64(refused)
	if c.releasing -= len(out); c.releasing == 0 {
		c.released.Broadcast()
	}
	c.mu.Unlock()
}
