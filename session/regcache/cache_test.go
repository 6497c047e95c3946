package regcache

import (
	"errors"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"sansock/provider"
)

func TestReuse(t *testing.T) {
	n := newNIC(t)
	c := open(t, n, ample)
	b := marked(64<<10, 1)
	h := use(t, c, b)
	require.Equal(t, h, use(t, c, b), "the same memory")
	require.Equal(t, h, use(t, c, b[4096:8192]), "a part of it")
	require.Equal(t, h, use(t, c, b[:1]))
	require.Equal(t, 1, n.registered)
	require.Equal(t, Stats{Hits: 3, Misses: 1, Cached: 1, Bytes: 64 << 10}, c.Stats())

	first, second := get(t, c, b), get(t, c, b[8:])
	require.Equal(t, h, first)
	require.Equal(t, h, second, "two uses at a time")
	require.Equal(t, 1, c.Stats().InUse)
	c.Put(first)
	require.Equal(t, 1, c.Stats().InUse)
	c.Put(second)
	require.Equal(t, 0, c.Stats().InUse)
	require.Equal(t, 1, c.Stats().Cached)
	runtime.KeepAlive(b)
}

// A registration serves what it covers and nothing else.
func TestOnlyWhatIsCovered(t *testing.T) {
	n := newNIC(t)
	c := open(t, n, ample)
	b := marked(64<<10, 1)
	middle := use(t, c, b[16<<10:32<<10])
	before := use(t, c, b[16<<10-8:32<<10])
	after := use(t, c, b[24<<10:32<<10+8])
	require.NotEqual(t, middle, before)
	require.NotEqual(t, middle, after)
	require.NotEqual(t, before, after)
	whole := use(t, c, b)
	require.Equal(t, 4, n.registered)
	require.Equal(t, whole, use(t, c, b[16<<10-8:32<<10+8]), "only the whole covers it")
	require.Equal(t, 4, n.registered)

	grown := append(b, 0) // another object
	mark(grown, 2)
	require.NotEqual(t, whole, use(t, c, grown))
	runtime.KeepAlive(b)
}

func TestEvictionOrder(t *testing.T) {
	n := newNIC(t)
	c := open(t, n, Limits{Entries: 3, Bytes: 64 << 20})
	var b [5][]byte
	for i := range b {
		b[i] = marked(4096, uint64(i))
	}
	h0, h1, h2 := use(t, c, b[0]), use(t, c, b[1]), use(t, c, b[2])
	require.Equal(t, h0, use(t, c, b[0]))
	require.Empty(t, n.order)
	h3 := use(t, c, b[3])
	require.Equal(t, []provider.Handle{h1}, n.order, "least recently used first")
	h4 := use(t, c, b[4])
	require.Equal(t, []provider.Handle{h1, h2}, n.order)
	require.Equal(t, h0, use(t, c, b[0]))
	require.Equal(t, h3, use(t, c, b[3]))
	require.Equal(t, h4, use(t, c, b[4]))
	require.EqualValues(t, 2, c.Stats().Evictions)
	runtime.KeepAlive(b)
}

func TestByteLimit(t *testing.T) {
	n := newNIC(t)
	c := open(t, n, Limits{Entries: 100, Bytes: 10 << 10})
	a, b, d := marked(4<<10, 1), marked(6<<10, 2), marked(1<<10, 3)
	ha, hb := use(t, c, a), use(t, c, b)
	require.Equal(t, 2, n.live(), "exactly full")
	require.Equal(t, ha, use(t, c, a))
	use(t, c, d)
	require.Equal(t, []provider.Handle{hb}, n.order)
	require.Equal(t, 5<<10, c.Stats().Bytes)

	large := marked(10<<10+8, 4)
	h := get(t, c, large)
	require.Equal(t, 3, n.live(), "what is never kept drives nothing out")
	c.Put(h)
	require.Equal(t, []provider.Handle{hb, h}, n.order)
	require.Equal(t, ha, use(t, c, a))
	runtime.KeepAlive([][]byte{a, b, d})
}

func TestNeverEvictsWhatIsInUse(t *testing.T) {
	n := newNIC(t)
	c := open(t, n, Limits{Entries: 2, Bytes: 64 << 20})
	var b [4][]byte
	var h [4]provider.Handle
	for i := range b {
		b[i] = marked(4096, uint64(i))
		h[i] = get(t, c, b[i])
	}
	require.Equal(t, 4, n.live())
	require.Equal(t, 4, c.Stats().InUse)
	c.Put(h[2])
	require.Equal(t, []provider.Handle{h[2]}, n.order, "it goes first, being unused")
	c.Put(h[0])
	require.Equal(t, []provider.Handle{h[2], h[0]}, n.order)
	c.Put(h[1])
	c.Put(h[3])
	require.Equal(t, 2, n.live())
	require.Equal(t, h[1], use(t, c, b[1]))
	require.Equal(t, h[3], use(t, c, b[3]))
	get0 := get(t, c, b[0])
	require.Equal(t, []provider.Handle{h[2], h[0], h[1]}, n.order, "at once, with the new one in use")
	c.Put(get0)
	runtime.KeepAlive(b)
}

func TestOff(t *testing.T) {
	for name, l := range map[string]Limits{"entries": {Bytes: 1 << 20}, "bytes": {Entries: 10}, "zero": {}} {
		t.Run(name, func(t *testing.T) {
			n := newNIC(t)
			c := open(t, n, l)
			b := marked(4096, 1)
			for i := range 3 {
				first, second := get(t, c, b), get(t, c, b)
				require.NotEqual(t, first, second)
				require.Equal(t, Stats{Misses: uint64(2*i + 2), InUse: 2, Bytes: 8192}, c.Stats())
				c.Put(first)
				require.Equal(t, 1, n.live())
				c.Put(second)
				require.Equal(t, 0, n.live())
			}
			runtime.KeepAlive(b)
		})
	}
}

func TestInvalidate(t *testing.T) {
	n := newNIC(t)
	c := open(t, n, ample)
	b := marked(64<<10, 1)
	low, high := use(t, c, b[:32<<10]), get(t, c, b[32<<10:])
	c.Invalidate(nil)
	c.Invalidate(b[:0])
	c.Invalidate(b[16<<10 : 16<<10])
	require.Empty(t, n.order)
	c.Invalidate(b[32<<10-1 : 32<<10])
	require.Equal(t, []provider.Handle{low}, n.order)

	c.Invalidate(b[64<<10-1:])
	require.Equal(t, []provider.Handle{low}, n.order, "in use")
	other := get(t, c, b[32<<10:])
	require.NotEqual(t, high, other, "never hit again")
	third := get(t, c, b[40<<10:])
	require.Equal(t, other, third)
	c.Invalidate(b)
	c.Put(other)
	require.Equal(t, []provider.Handle{low}, n.order, "still in use")
	c.Put(high)
	require.Equal(t, []provider.Handle{low, high}, n.order)
	c.Put(third)
	require.Equal(t, []provider.Handle{low, high, other}, n.order)
	runtime.KeepAlive(b)
}

// What is invalidated while it is being registered may be either memory.
func TestInvalidatedWhileRegistering(t *testing.T) {
	n := newNIC(t)
	c := open(t, n, ample)
	b := marked(4096, 1)
	n.hook = func() { Forget(b) }
	h := get(t, c, b)
	n.hook = nil
	require.NotEqual(t, h, use(t, c, b))
	c.Put(h)
	require.Equal(t, []provider.Handle{h}, n.order)
	runtime.KeepAlive(b)
}

func TestMisuse(t *testing.T) {
	n := newNIC(t)
	c := open(t, n, ample)
	b := marked(4096, 1)
	h := use(t, c, b)
	c.Put(h) // once more than Get
	c.Put(h + 1)
	c.Put(0)
	require.Empty(t, n.order)
	require.Equal(t, h, get(t, c, b))
	c.Invalidate(b)
	require.Empty(t, n.order)
	c.Put(h)
	require.Equal(t, []provider.Handle{h}, n.order)
	c.Put(h)

	for range 2 {
		h := get(t, c, nil)
		require.Equal(t, 1, n.live())
		c.Put(h)
		require.Equal(t, 0, n.live())
	}
	for i := range 9 { // the runtime packs tiny objects
		use(t, c, make([]byte, 1+i))
	}
}

func TestClose(t *testing.T) {
	n := newNIC(t)
	c := open(t, n, ample)
	a, b := marked(4096, 1), marked(4096, 2)
	use(t, c, a)
	h := get(t, c, b)
	var late provider.Handle
	n.hook = func() { n.hook = nil; c.Close() }
	late = get(t, c, marked(4096, 3))
	require.Equal(t, 2, n.live(), "what is in use")
	c.Close()
	_, err := c.Get(a)
	require.ErrorIs(t, err, net.ErrClosed)
	c.Put(h)
	c.Put(late)
	require.Equal(t, 0, n.live())
	runtime.KeepAlive([][]byte{a, b})
}

// Close waits for registrations that somebody else is ending.
func TestCloseWaits(t *testing.T) {
	n := newNIC(t)
	n.slow = make(chan struct{})
	c := open(t, n, ample)
	b := marked(4096, 1)
	h := get(t, c, b)
	c.Invalidate(b)
	var wg sync.WaitGroup
	wg.Go(func() { c.Put(h) }) // waits in Deregister
	for c.Stats().InUse > 0 {
		runtime.Gosched()
	}
	done := make(chan int)
	wg.Go(func() {
		c.Close()
		done <- n.live()
	})
	for {
		c.mu.Lock()
		closed := c.closed
		c.mu.Unlock()
		if closed {
			break
		}
		runtime.Gosched()
	}
	close(n.slow)
	require.Equal(t, 0, <-done)
	wg.Wait()
	runtime.KeepAlive(b)
}

func TestRegistrationFails(t *testing.T) {
	n := newNIC(t)
	c := open(t, n, ample)
	failure := errors.New("device on fire")
	fails := 0
	n.fail = func() error { fails++; return failure }
	_, err := c.Get(marked(4096, 1))
	require.Equal(t, failure, err)
	require.Equal(t, 1, fails, "nothing that giving up memory would help")

	for _, s := range []provider.Status{provider.StatusLimit, provider.StatusNoMemory} {
		n.fail = nil
		use(t, c, marked(4096, 1))
		use(t, c, marked(4096, 2))
		held := get(t, c, marked(4096, 3))
		live := n.live()
		fails = 0
		n.fail = func() error { fails++; return s }
		_, err = c.Get(marked(8192, 4))
		require.Equal(t, s, err)
		require.Equal(t, 2, fails, "once more after giving up two")
		require.Equal(t, live-2, n.live())
		fails = 0
		_, err = c.Get(marked(4096, 5))
		require.Equal(t, s, err)
		require.Equal(t, 1, fails, "nothing left to give up")
		c.Put(held)
		require.True(t, c.Relieve(1), "it stayed")
		require.False(t, c.Relieve(1))
	}
}

// A limit of the device is kept by giving up what is cached, in this cache first and then in others.
func TestLimitOfDevice(t *testing.T) {
	limit := 3
	n1, n2 := newNIC(t), newNIC(t)
	n1.limit, n2.limit = &limit, &limit
	c1, c2 := open(t, n1, ample), open(t, n2, ample)
	var b [6][]byte
	for i := range b {
		b[i] = marked(4096, uint64(i))
	}
	h0 := use(t, c1, b[0])
	use(t, c1, b[1])
	h2 := use(t, c2, b[2])
	use(t, c2, b[3])
	require.Equal(t, []provider.Handle{h2}, n2.order, "its own")
	require.Empty(t, n1.order)
	held := get(t, c2, b[3])
	get4 := get(t, c2, b[4])
	require.Equal(t, []provider.Handle{h0}, n1.order, "of others, least recently used first")
	get5 := get(t, c2, b[5])
	require.Equal(t, 0, n1.live())
	require.Equal(t, 0, limit)
	_, err := c1.Get(b[0])
	require.ErrorIs(t, err, provider.StatusLimit, "all in use")
	require.False(t, c1.Relieve(1))
	for _, h := range []provider.Handle{held, get4, get5} {
		c2.Put(h)
	}
	use(t, c1, b[0])
	runtime.KeepAlive(b)
}

// otherNIC is an endpoint of another provider.
type otherNIC struct{ *nic }

func TestRelieveTakesNoMoreThanAsked(t *testing.T) {
	n := newNIC(t)
	b := [...][]byte{marked(4096, 1), marked(4096, 2), marked(4096, 3)}
	for i := range b {
		use(t, open(t, n, ample), b[i])
	}
	c := open(t, n, ample)
	require.True(t, c.Relieve(1))
	require.Equal(t, 2, n.live())
	require.True(t, c.Relieve(8192))
	require.Equal(t, 0, n.live())
	runtime.KeepAlive(b)
}

func TestRelieveSparesOtherProviders(t *testing.T) {
	n := newNIC(t)
	c := open(t, n, ample)
	b := marked(4096, 1)
	use(t, c, b)
	o := New(otherNIC{newNIC(t)}, ample)
	defer o.Close()
	require.False(t, o.Relieve(1))
	require.Equal(t, 1, n.live())
	require.True(t, c.Relieve(0))
	require.Equal(t, 0, n.live())
	runtime.KeepAlive(b)
}

func TestRefusedDeregistration(t *testing.T) {
	n := newNIC(t)
	c := New(n, Limits{})
	n.refuse = provider.StatusBusy
	use(t, c, marked(4096, 1))
	require.Equal(t, Stats{Misses: 1, Refused: 1}, c.Stats())
	c.Close()
}

// A provider's own cache is told before memory goes away, and before a registration of memory that may have changed.
func TestCacheBelow(t *testing.T) {
	n := newNIC(t)
	n.below = &lower{n}
	c := open(t, n, ample)
	b := marked(4096, 1)
	n.hook = func() { require.Equal(t, []extent{extentOf(b)}, n.invalid) }
	use(t, c, b)
	use(t, c, b)
	require.Equal(t, []extent{extentOf(b)}, n.invalid, "not for a hit")
	Forget(b[:8])
	require.Equal(t, []extent{extentOf(b), extentOf(b[:8])}, n.invalid)
	require.Len(t, n.order, 1)
	Watch(b[8:])()
	require.Equal(t, extentOf(b[8:]), n.invalid[2])
	runtime.KeepAlive(b)
}

var global [8192]byte

// Global variables are not of the heap. They are kept when declared.
func TestGlobalVariable(t *testing.T) {
	n := newNIC(t)
	c := open(t, n, ample)
	b := mark(global[:], 1)
	require.NotEqual(t, use(t, c, b), use(t, c, b))
	require.Equal(t, 0, n.live())
	stop := Watch(b[:4096])
	again := Watch(b[:4096])
	require.NotEqual(t, use(t, c, b[8:4096+8]), use(t, c, b[8:4096+8]), "part of it is not declared")
	h := use(t, c, b[8:4096])
	require.Equal(t, h, use(t, c, b[8:4096]))
	stop()
	stop()
	require.Equal(t, 0, n.live())
	require.Equal(t, use(t, c, b[8:4096]), use(t, c, b[8:4096]), "declared twice")
	n.hook = again
	use(t, c, b[:4096])
	require.Equal(t, 0, n.live(), "the declaration ended during the registration")
	require.NotEqual(t, use(t, c, b[8:4096]), use(t, c, b[8:4096]))
	require.Empty(t, process.watched)
}

// Declaring memory of the heap does not make it more than an object.
func TestWatchedHeap(t *testing.T) {
	n := newNIC(t)
	c := open(t, n, ample)
	b := marked(4096, 1)
	defer Watch(b)()
	use(t, c, b)
	require.False(t, c.entries[0].declared)
	runtime.KeepAlive(b)
}

func TestHitsDoNotAllocate(t *testing.T) {
	n := newNIC(t)
	c := open(t, n, ample)
	b := marked(4096, 1)
	use(t, c, b)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		h, _ := c.Get(b[8:])
		c.Put(h)
	}))
}

// Faults at random leave nothing behind.
func TestFaults(t *testing.T) {
	n := newNIC(t)
	c := open(t, n, Limits{Entries: 8, Bytes: 256 << 10})
	r := rand.New(rand.NewPCG(1, 2))
	faults := []error{nil, nil, provider.StatusLimit, provider.StatusNoMemory, provider.StatusLink}
	n.fail = func() error { return faults[r.IntN(len(faults))] }
	objects := make([][]byte, 16)
	held := map[provider.Handle]int{}
	failed := 0
	for i := range 10000 {
		if i%8 == 0 {
			objects[r.IntN(len(objects))] = nil
		}
		o := &objects[r.IntN(len(objects))]
		if *o == nil {
			*o = marked(8192<<r.IntN(5), uint64(i))
		}
		b := (*o)[8*r.IntN(512):]
		h, err := c.Get(b)
		if err != nil {
			require.Contains(t, faults, err)
			failed++
			continue
		}
		require.True(t, n.begin(h, b))
		n.end(h)
		held[h]++
		if r.IntN(16) == 0 {
			c.Invalidate(b)
		}
		if len(held) > 4 {
			for h, uses := range held {
				for range uses {
					c.Put(h)
				}
				delete(held, h)
				break
			}
		}
	}
	require.Greater(t, failed, 100)
	for h, uses := range held {
		for range uses {
			c.Put(h)
		}
	}
	s := c.Stats()
	require.Zero(t, s.InUse)
	require.LessOrEqual(t, s.Cached, 8)
	require.LessOrEqual(t, s.Bytes, 256<<10)
	require.Equal(t, s.Cached, n.live())
	require.Zero(t, s.Refused)
}
