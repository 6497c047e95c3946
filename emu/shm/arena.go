//go:build linux

package shm

import (
	"math/bits"
	"sync"

	"golang.org/x/sys/unix"

	"sansock/provider"
)

const (
	firstSegment = 64 << 10
	lastSegment  = 4 << 20   // an arena grows by steps up to here
	ownSegment   = 512 << 10 // from here on a block has pages of its own
	maxBlock     = 64 << 20
	grain        = 64

	// maxBulk bounds the large blocks of one direction of a link that connections may keep. Beyond that they would fall
	// out of the caches between two uses, and small ones are faster.
	maxBulk = 32 << 20
)

// block is a piece of an arena.
type block struct {
	at   ptr
	size int // as rounded
	mem  []byte
}

// arena is the memory that this process gives to a link: both sides have it mapped. Fresh shared pages are
// expensive, so blocks that are given back are kept for the next of the size.
type arena struct {
	node *Node
	hdr  header // at the beginning

	mu    sync.Mutex // below the endpoint's, above the link's for sending
	fd    int
	mem   []byte // most of which is not there yet
	size  int    // what is there
	limit int    // what may be there
	steps int    // in which it has grown
	next  int    // small blocks are cut from here
	end   int    // to here
	free  map[int][]block
	live  int  // blocks in use
	bulk  int  // bytes of the large ones among them
	dead  bool // the link is: what is given back is not kept
}

// rounded is the size of the block for n bytes: within an eighth of it.
func rounded(n int) int {
	g := grain
	if e := bits.Len(uint(max(n-1, 1))); e > 9 {
		g = 1 << (e - 4)
	}
	return (max(n, 1) + g - 1) / g * g
}

// open makes the memory, and the header in it.
func (a *arena) open(n *Node) error {
	a.node, a.free, a.fd = n, make(map[int][]block), -1
	if !n.reserve(firstSegment) {
		return provider.StatusLimit
	}
	fd, mem, err := newMemory(firstSegment)
	if err != nil {
		n.reserve(-firstSegment)
		return err
	}
	a.fd, a.mem, a.size, a.end, a.limit = fd, mem, firstSegment, firstSegment, firstSegment
	a.next = rounded(headerBytes)
	a.hdr = viewHeader(mem)
	a.hdr.grown.Store(firstSegment)
	return nil
}

// allowed lets the arena grow up to what the peer lets us have.
func (a *arena) allowed(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limit = min(n, int(a.node.perPeer()), maxMemory)
}

// alloc returns a block of at least n bytes, and whether it has never been used and so is zero.
func (a *arena) alloc(n int) (b block, fresh bool, err error) {
	if n < 0 || n > maxBlock {
		return block{}, false, provider.StatusNoMemory
	}
	size := rounded(n)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.dead {
		return block{}, false, provider.StatusDisconnected
	}
	if f := a.free[size]; len(f) > 0 {
		b = f[len(f)-1]
		a.free[size] = f[:len(f)-1]
		a.count(size, 1)
		return b, false, nil
	}
	off := a.next
	switch {
	case size >= ownSegment:
		off = a.size
		if err = a.grow(size); err != nil {
			return block{}, false, err
		}
	case a.next+size > a.end:
		off = a.size
		if err = a.grow(max(a.step(), size)); err != nil {
			return block{}, false, err
		}
		a.end = a.size
		fallthrough
	default:
		a.next = off + size
	}
	a.count(size, 1)
	return block{ptr(off), size, a.mem[off : off+size : off+size]}, true, nil
}

// count notes that one block more of the size is in use, or, with n -1, one less. Called with mu held.
func (a *arena) count(size, n int) {
	a.live += n
	if size >= ownSegment {
		a.bulk += n * size
	}
}

// full reports whether connections have as many large blocks as they may, for one of n bytes.
func (a *arena) full(n int) bool {
	if rounded(n) < ownSegment {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bulk > 0 && a.bulk+rounded(n) > maxBulk
}

// step is by how much the arena grows where that is not said: by more each time, as far as it may. Called with mu held.
func (a *arena) step() int {
	return min(firstSegment<<min(a.steps+1, 6), lastSegment, (a.limit-a.size)&^(page-1))
}

// grow adds n bytes, in whole pages. A peer that sees a pointer into them finds them in the header. Called with mu held.
func (a *arena) grow(n int) error {
	n = (n + page - 1) &^ (page - 1)
	if a.size+n > a.limit || !a.node.reserve(int64(n)) {
		return provider.StatusLimit
	}
	if err := allocate(a.fd, a.size, n); err != nil {
		a.node.reserve(-int64(n))
		return noMemory(err)
	}
	populate(a.mem[a.size : a.size+n])
	a.size += n
	a.steps++
	a.hdr.grown.Store(uint64(a.size))
	return nil
}

// release takes a block back. The peer must not use it any more, unless it is hostile.
func (a *arena) release(b block) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count(b.size, -1)
	if !a.dead {
		a.free[b.size] = append(a.free[b.size], b)
		return
	}
	a.unmap()
}

// kill ends the arena. What is in use stays mapped until it is released.
func (a *arena) kill() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dead = true
	a.free = nil
	a.unmap()
}

func (a *arena) unmap() {
	if a.live > 0 || a.fd < 0 {
		return
	}
	a.node.reserve(-int64(a.size))
	unix.Munmap(a.mem)
	unix.Close(a.fd)
	a.fd, a.mem, a.size = -1, nil, 0
}
