//go:build linux

package shm

import (
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"sansock/provider"
)

// Each side of a link has one file of memory, which both map as a whole when they meet. Nothing of it is there at first but
// its beginning: the owner allocates more as it needs it, and says in its header how much there is. So no descriptor
// changes hands after the handshake, no mapping can fail later, and a peer costs two mappings however much it has.

// ptr is a place in the memory of one side.
type ptr uint64

const (
	ptrBits = 36
	page    = 4096

	// maxMemory is the size of a file: address space on both sides, and an upper bound for what may be there.
	maxMemory = 32 << 20 << (5 * (^uint(0) >> 63)) // 1 GiB, or 32 MiB where addresses have 32 bits
)

// seals keep the owner from changing the size under the feet of the peer, which would be killed for touching it.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

// peerSeals are added by the peer, when both have mapped the memory. The first keeps the owner from giving pages back that the
// peer would then be charged for. Linux has it since 5.1.
const peerSeals = unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL

// newMemory makes the memory of this side. Its first bytes are really there.
func newMemory(first int) (fd int, mem []byte, err error) {
	fd, err = memfd()
	if err != nil {
		return -1, nil, noMemory(err)
	}
	if err = unix.Ftruncate(fd, maxMemory); err == nil {
		err = allocate(fd, 0, first)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err == nil {
		mem, err = mapMemory(fd)
	}
	if err != nil {
		unix.Close(fd)
		return -1, nil, noMemory(err)
	}
	return fd, mem, nil
}

// memfd makes a file of memory that cannot be executed, where the kernel knows of that (Linux 6.3).
func memfd() (int, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("sansock", flags|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL {
		fd, err = unix.MemfdCreate("sansock", flags)
	}
	return fd, err
}

// allocate has pages be there, so that nobody is ever killed for touching them.
func allocate(fd, at, n int) error {
	return eintr(func() error { return unix.Fallocate(fd, 0, int64(at), int64(n)) })
}

func mapMemory(fd int) ([]byte, error) {
	mem, err := unix.Mmap(fd, 0, maxMemory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err == nil {
		unix.Madvise(mem, unix.MADV_DONTDUMP) // most of it is not there
	}
	return mem, err
}

// populate maps pages that will be used from end to end, all at once. Older kernels cannot, which costs only time.
func populate(mem []byte) {
	if len(mem) >= ownSegment {
		unix.Madvise(mem, unix.MADV_POPULATE_WRITE)
	}
}

// theirs is the peer's memory.
type theirs struct {
	fd    int // -1: there is none
	mem   []byte
	allow uint64         // how much we let it have
	grown *atomic.Uint64 // how much is there, as the peer says
	size  atomic.Uint64  // how much is there, as we have seen

	mu sync.Mutex // for looking; a leaf
}

// open maps the peer's memory, after it has made sure that touching it is safe for ever. It owns fd, which it gives up by an
// error only if it is memory: another file may take its time to be closed.
func (t *theirs) open(fd int, first, allow int) error {
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil { // of a file that is no memory
		closeForeign(fd)
		return fmt.Errorf("no sealed memory: %w", err)
	}
	if err = t.check(fd, got, first); err == nil {
		t.mem, err = mapMemory(fd)
	}
	if err == nil {
		if _, serr := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, peerSeals); serr != nil && serr != unix.EINVAL {
			unix.Munmap(t.mem)
			t.mem, err = nil, fmt.Errorf("memory cannot be sealed: %w", serr)
		}
	}
	if err == nil {
		if err = there(fd, uint64(first)); err != nil {
			unix.Munmap(t.mem)
			t.mem = nil
		}
	}
	if err != nil {
		unix.Close(fd)
		return err
	}
	t.fd, t.allow = fd, uint64(allow)
	t.grown = viewHeader(t.mem).grown
	t.size.Store(uint64(first))
	return nil
}

// check makes sure that fd is memory of the right kind and size, whose size stays.
func (t *theirs) check(fd, got, first int) error {
	var fs unix.Statfs_t
	var st unix.Stat_t
	switch {
	case got&seals != seals || got&(unix.F_SEAL_WRITE|peerSeals) != 0:
		return fmt.Errorf("memory with seals %#x", got)
	case unix.Fstatfs(fd, &fs) != nil || fs.Type != unix.TMPFS_MAGIC: // huge pages may be promised and then not be there
		return fmt.Errorf("memory of file system %#x", fs.Type)
	case unix.Fstat(fd, &st) != nil || st.Size != maxMemory:
		return fmt.Errorf("%d bytes of memory", st.Size)
	case first < firstSegment || first > maxMemory || first%page != 0:
		return fmt.Errorf("memory that begins with %d bytes", first)
	}
	return nil
}

// there makes sure that the file has as many pages as the peer says.
func there(fd int, n uint64) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if uint64(st.Blocks)*512 < n {
		return fmt.Errorf("%d bytes of memory of which %d are there", n, st.Blocks*512)
	}
	return nil
}

// at returns the n bytes at p, if there are such.
func (t *theirs) at(p ptr, n int) ([]byte, bool) {
	if n < 0 || p > maxMemory || n > maxMemory {
		return nil, false
	}
	end := uint64(p) + uint64(n)
	if end > t.size.Load() && !t.look(end) {
		return nil, false
	}
	return t.mem[p:end:end], true
}

// look looks whether there is more memory than when we looked last. The owner says so before it tells of anything in it.
func (t *theirs) look(end uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fd < 0 {
		return false
	}
	size, n := t.size.Load(), t.grown.Load()
	if n < end || n < size || n > t.allow || n > uint64(len(t.mem)) || n%page != 0 || there(t.fd, n) != nil {
		return end <= size
	}
	populate(t.mem[size:n])
	t.size.Store(n)
	return true
}

// close unmaps the memory, which nobody uses any more.
func (t *theirs) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fd < 0 {
		return
	}
	unix.Munmap(t.mem)
	unix.Close(t.fd)
	t.fd, t.mem = -1, nil
	t.size.Store(0)
}

func eintr(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

func noMemory(err error) error {
	return &provider.Error{Provider: "emu", Op: "allocate", Status: provider.StatusNoMemory, Err: err}
}
