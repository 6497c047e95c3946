//go:build amd64 || arm64

package regcache

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func mmap(t *testing.T, size int) []byte {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(b)) })
	return b
}

// replace unmaps b, which is a whole mapping, and maps other memory at its address.
func replace(t *testing.T, b []byte, id uint64) {
	lo := extentOf(b).lo
	at, _, e := unix.Syscall6(unix.SYS_MMAP, lo, uintptr(len(b)), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_FIXED, ^uintptr(0), 0)
	require.Zero(t, e)
	require.Equal(t, lo, at)
	require.Zero(t, idOf(b), "the old memory is gone")
	mark(b, id)
}

func TestMapped(t *testing.T) {
	n := newNIC(t)
	c := open(t, n, ample)
	b := mark(mmap(t, 1<<20), 1)

	for id := range uint64(3) { // nobody tells when it changes
		h := get(t, c, b)
		require.NotEqual(t, h, use(t, c, b))
		c.Put(h)
		require.Equal(t, 0, n.live())
		replace(t, b, 2+id)
	}

	stop := Watch(b)
	h := use(t, c, b)
	require.Equal(t, h, use(t, c, b[4096:]))
	Forget(b)
	require.Equal(t, 0, n.live())
	replace(t, b, 10)
	other := use(t, c, b)
	require.NotEqual(t, h, other)
	require.Equal(t, other, use(t, c, b), "still declared")

	// Forgotten while in use. That is against the rules, and still harms nobody else.
	held := get(t, c, b)
	require.Equal(t, other, held)
	Forget(b[4096:8192])
	replace(t, b, 11)
	require.NotEqual(t, held, use(t, c, b))
	c.Put(held)

	stop()
	require.Equal(t, 0, n.live())
	replace(t, b, 12)
	require.NotEqual(t, use(t, c, b), use(t, c, b))
	require.Equal(t, 0, n.live())
}

// All caches of the process are told.
func TestMappedInTwoCaches(t *testing.T) {
	n1, n2 := newNIC(t), newNIC(t)
	c1, c2 := open(t, n1, ample), open(t, n2, ample)
	b := mark(mmap(t, 64<<10), 1)
	stop := Watch(b)
	use(t, c1, b)
	use(t, c2, b)
	require.Equal(t, 2, n1.live()+n2.live())
	stop()
	require.Equal(t, 0, n1.live()+n2.live())
	replace(t, b, 2)
	use(t, c1, b)
	use(t, c2, b)
}
