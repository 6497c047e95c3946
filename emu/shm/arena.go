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
	lastSegment  = 4 << 20   // segments grow up to here
	ownSegment   = 512 << 10 // from here on a block has a segment of its own
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
	l *link

	mu   sync.Mutex // below the endpoint's, above the link's for sending
	segs [][]byte
	cur  int    // the segment that small blocks are cut from
	next uint32 // where
	free map[int][]block
	live int  // blocks in use
	bulk int  // bytes of the large ones among them
	dead bool // the link is: what is given back is not kept
}

// rounded is the size of the block for n bytes: within an eighth of it.
func rounded(n int) int {
	g := grain
	if e := bits.Len(uint(max(n-1, 1))); e > 9 {
		g = 1 << (e - 4)
	}
	return (max(n, 1) + g - 1) / g * g
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
	seg, off := a.cur, a.next
	switch {
	case size >= ownSegment:
		if seg, err = a.grow((size + 4095) &^ 4095); err != nil {
			return block{}, false, err
		}
		off = 0
	case int(off)+size > len(a.segs[seg]):
		if seg, err = a.grow(max(min(firstSegment<<min(len(a.segs), 6), lastSegment), (size+4095)&^4095)); err != nil {
			return block{}, false, err
		}
		a.cur, off = seg, 0
		fallthrough
	default:
		a.next = off + uint32(size)
	}
	a.count(size, 1)
	return block{place(seg, off), size, a.segs[seg][off : int(off)+size : int(off)+size]}, true, nil
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

// grow adds a segment and sends it to the peer. A peer that sees a pointer into it finds it in the socket.
// Called with mu held.
func (a *arena) grow(size int) (int, error) {
	seg := len(a.segs)
	if seg >= maxSegs || !a.l.node.reserve(int64(size)) {
		return 0, provider.StatusLimit
	}
	fd, mem, err := newSegment(size)
	if err == nil {
		if err = a.l.sendSegment(seg, size, fd); err != nil {
			unix.Munmap(mem)
			switch err {
			case unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM, unix.ETOOMANYREFS:
				err = noMemory(err)
			default: // the peer is gone, which is no lack of memory
				err = provider.StatusDisconnected
			}
		}
		unix.Close(fd)
	}
	if err != nil {
		a.l.node.reserve(-int64(size))
		return 0, err
	}
	a.segs = append(a.segs, mem)
	return seg, nil
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
	if a.live > 0 {
		return
	}
	for _, s := range a.segs {
		a.l.node.reserve(-int64(len(s)))
		unix.Munmap(s)
	}
	a.segs = nil
}
