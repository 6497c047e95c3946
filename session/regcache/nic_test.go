package regcache

import (
	"encoding/binary"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"sansock/provider"
)

// mark makes b known as the memory id, at every multiple of 8 bytes. A device that holds the pages of other memory
// would see another one there.
func mark(b []byte, id uint64) []byte {
	for i := 0; i+8 <= len(b); i += 8 {
		binary.NativeEndian.PutUint64(b[i:], id)
	}
	return b
}

func marked(n int, id uint64) []byte { return mark(make([]byte, n), id) }

func idOf(b []byte) (id uint64) {
	if cap(b) >= 8 {
		id = binary.NativeEndian.Uint64(b[:8])
	}
	return id
}

// pin is what a device holds: where, and which memory it was at the time. Like hardware it does not keep an object of
// the Go heap alive.
type pin struct {
	extent
	id    uint64
	using int
}

// nic is a device that registers memory.
type nic struct {
	t *testing.T

	mu         sync.Mutex
	next       provider.Handle
	pins       map[provider.Handle]*pin
	order      []provider.Handle // as deregistered
	registered int
	fail       func() error         // of Register
	refuse     error                // of Deregister
	hook       func()               // called while registering
	ended      chan provider.Handle // told of what is deregistered, if not nil
	slow       chan struct{}        // holds up Deregister, if not nil

	below   *lower // the provider's own cache
	limit   *int   // registrations left, shared with other devices
	invalid []extent
}

func newNIC(t *testing.T) *nic { return &nic{t: t, pins: map[provider.Handle]*pin{}} }

// lower counts what a provider is told.
type lower struct{ n *nic }

func (l *lower) InvalidateCache(b []byte) {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	l.n.invalid = append(l.n.invalid, extentOf(b))
}

func (n *nic) Extension(id provider.GUID) (any, error) {
	if n.below != nil && id == provider.GUIDCacheCallback {
		return n.below, nil
	}
	return nil, provider.StatusUnsupported
}

func (n *nic) Register(b []byte) (provider.Region, error) {
	n.mu.Lock()
	hook := n.hook
	n.mu.Unlock()
	if hook != nil {
		hook()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fail != nil {
		if err := n.fail(); err != nil {
			return provider.Region{}, err
		}
	}
	if n.limit != nil {
		if *n.limit == 0 {
			return provider.Region{}, &provider.Error{Provider: "nic", Op: "register", Status: provider.StatusLimit}
		}
		*n.limit--
	}
	n.registered++
	n.next++
	n.pins[n.next] = &pin{extent: extentOf(b), id: idOf(b)}
	return provider.Region{Bytes: b, Handle: n.next}, nil
}

func (n *nic) Deregister(h provider.Handle) error {
	if n.slow != nil {
		<-n.slow
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.refuse != nil {
		return n.refuse
	}
	p := n.pins[h]
	if p == nil {
		n.t.Errorf("deregistered %d, which is not registered", h)
		return provider.StatusAccess
	}
	if p.using > 0 {
		n.t.Errorf("deregistered %d, which is in use", h)
		return provider.StatusBusy
	}
	delete(n.pins, h)
	if n.limit != nil {
		*n.limit++
	}
	n.order = append(n.order, h)
	if n.ended != nil {
		n.ended <- h
	}
	return nil
}

// begin is an operation that names the registration h of b, until end. It reports whether the device holds b.
func (n *nic) begin(h provider.Handle, b []byte) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.pins[h]
	if p == nil {
		n.t.Errorf("used %d, which is not registered", h)
		return false
	}
	p.using++
	ok := p.covers(extentOf(b)) && p.id == idOf(b)
	if !ok {
		n.t.Errorf("stale: %d is %#x with memory %d, used for %#x with memory %d", h, p.extent, p.id, extentOf(b), idOf(b))
	}
	return ok
}

func (n *nic) end(h provider.Handle) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pins[h].using--
}

func (n *nic) live() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.pins)
}

// get uses b for an operation and leaves it in use.
func get(t *testing.T, c *Cache, b []byte) provider.Handle {
	t.Helper()
	h, err := c.Get(b)
	require.NoError(t, err)
	n := c.ep.(*nic)
	require.True(t, n.begin(h, b))
	n.end(h)
	return h
}

// use uses b for an operation.
func use(t *testing.T, c *Cache, b []byte) provider.Handle {
	t.Helper()
	h := get(t, c, b)
	c.Put(h)
	return h
}

// open returns a cache that is closed at the end of the test, which must leave nothing registered.
func open(t *testing.T, n *nic, l Limits) *Cache {
	c := New(n, l)
	t.Cleanup(func() {
		c.Close()
		require.Zero(t, n.live(), "registrations left")
		require.Equal(t, Stats{}, Stats{InUse: c.Stats().InUse, Cached: c.Stats().Cached, Bytes: c.Stats().Bytes})
		require.Zero(t, c.kept)
		require.Zero(t, c.bytes)
		require.NotContains(t, process.snapshot(), c)
	})
	return c
}

var ample = Limits{Entries: 64, Bytes: 64 << 20}
