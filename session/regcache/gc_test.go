package regcache

import (
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"sansock/provider"
)

// collect frees what is not reachable, and gives its pages back to the system.
func collect() {
	runtime.GC()
	runtime.GC()
	debug.FreeOSMemory()
}

// leave caches an object of size bytes and drops it. It returns where it was.
//
//go:noinline
func leave(t *testing.T, c *Cache, size int, id uint64) extent {
	b := marked(size, id)
	use(t, c, b)
	return extentOf(b)
}

// The allocator hands the address of a dead object out again before any cleanup has run. What is registered there is not
// the new object.
func TestReusedAddress(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	// For these sizes the allocator takes the lowest address that fits. With all garbage collected before, that is the
	// same one before and after.
	for _, size := range []int{256 << 10, 1 << 20} {
		for _, cleanups := range []bool{false, true} {
			n := newNIC(t)
			c := open(t, n, ample)
			found := false
			for round := 0; !found && round < 50; round++ {
				collect()
				old := leave(t, c, size, 1)
				if !cleanups {
					// The one that was to end it is late: only the weak pointer is left to tell.
					c.mu.Lock()
					c.entries[0].cleanup.Stop()
					c.mu.Unlock()
				}
				collect()
				var others [16][]byte
				for i := range others {
					b := marked(size, 2)
					if others[i] = b; extentOf(b) != old {
						continue
					}
					found = true
					if !cleanups {
						c.mu.Lock()
						stale := 0
						for i := range c.entries {
							if e := &c.entries[i]; e.extent == old {
								require.True(t, e.kept)
								stale++
							}
						}
						c.mu.Unlock()
						require.NotZero(t, stale)
					}
					misses := c.Stats().Misses
					h := use(t, c, b)
					require.Equal(t, misses+1, c.Stats().Misses)
					require.Equal(t, h, use(t, c, b[8:]))
					runtime.KeepAlive(b)
					break
				}
				runtime.KeepAlive(&others)
			}
			require.True(t, found, "no object of %d bytes came to the same place", size)
		}
	}
}

// A dead object's registration ends without anybody asking.
func TestCleanup(t *testing.T) {
	n := newNIC(t)
	n.ended = make(chan provider.Handle, 1)
	c := open(t, n, ample)
	leave(t, c, 1<<20, 1)
	b := marked(64<<10, 2)
	part := use(t, c, b[4096:8192]) // keeps none of it alive either
	require.Equal(t, 2, n.live())
	collect()
	require.EqualValues(t, 1, <-n.ended)
	require.Equal(t, part, use(t, c, b[4096:8192]))
	runtime.KeepAlive(b)
	b = nil
	collect()
	require.Equal(t, part, <-n.ended)
	for c.Stats().Cached > 0 {
		runtime.Gosched()
	}
}

// What is evicted leaves no cleanup at an object that lives on.
func TestEvictionStopsCleanup(t *testing.T) {
	n := newNIC(t)
	c := New(n, ample)
	b := marked(4096, 1)
	h := use(t, c, b)
	fence := make(chan struct{})
	runtime.AddCleanup(&b[0], func(int) { close(fence) }, 0)
	entries := c.entries[:1]
	e := entries[0]
	c.Close()
	require.Equal(t, []provider.Handle{h}, n.order)
	gone := make(chan struct{})
	runtime.SetFinalizer(c, func(*Cache) { close(gone) })
	c, entries = nil, nil
	collect()
	<-gone // it was not kept by the object
	require.NotNil(t, e.first.Value())
	runtime.KeepAlive(b)
	b = nil
	collect()
	<-fence
	require.Nil(t, e.first.Value())
}

// Uses, invalidations and the end of objects, all at the same time.
func TestConcurrent(t *testing.T) {
	n := newNIC(t)
	c := open(t, n, Limits{Entries: 6, Bytes: 1 << 20})
	var shared [4][]byte
	for i := range shared {
		shared[i] = marked(64<<10, uint64(i+1))
	}
	var ids atomic.Uint64
	ids.Store(1000)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(3, uint64(g)))
			var own []byte
			for i := range 1500 {
				b := shared[r.IntN(len(shared))]
				if r.IntN(2) == 0 {
					if own == nil || r.IntN(4) == 0 {
						own = marked(8192<<r.IntN(4), ids.Add(1)) // the one before is left to the collector
					}
					b = own
				}
				lo := r.IntN(len(b) / 8)
				hi := lo + 1 + r.IntN(len(b)/8-lo)
				b = b[8*lo : 8*hi]
				h, err := c.Get(b)
				if err != nil {
					t.Error(err)
					return
				}
				if !n.begin(h, b) {
					return
				}
				if i%64 == 0 {
					runtime.Gosched()
				}
				n.end(h)
				c.Put(h)
				switch r.IntN(40) {
				case 0:
					c.Invalidate(b)
				case 1:
					Forget(b)
				case 2:
					c.Relieve(1)
				}
			}
		})
	}
	wg.Go(func() {
		for range 40 {
			runtime.GC()
			c.Stats()
		}
	})
	wg.Wait()
	s := c.Stats()
	require.Zero(t, s.InUse)
	require.LessOrEqual(t, s.Cached, 6)
	require.NotZero(t, s.Hits)
	require.Zero(t, s.Refused)
	runtime.KeepAlive(&shared)
}
