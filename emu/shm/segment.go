//go:build linux

package shm

import (
	"fmt"

	"golang.org/x/sys/unix"

	"sansock/provider"
)

// ptr is a place in an arena: the number of the segment above the offset in it.
type ptr uint64

const (
	offsetBits = 28
	ptrBits    = 36
	maxSegment = 1 << offsetBits             // bytes
	maxSegs    = 1 << (ptrBits - offsetBits) // of one arena
)

func place(seg int, off uint32) ptr { return ptr(seg)<<offsetBits | ptr(off) }

func (p ptr) seg() int    { return int(p >> offsetBits) }
func (p ptr) offset() int { return int(p & (maxSegment - 1)) }

// at returns the n bytes at p, if there are such.
func at(segs [][]byte, p ptr, n int) ([]byte, bool) {
	s, off := p.seg(), p.offset()
	if s >= len(segs) || n < 0 || off > len(segs[s]) || n > len(segs[s])-off {
		return nil, false
	}
	return segs[s][off : off+n : off+n], true
}

const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// newSegment makes shared memory that is really there, so that nobody is ever killed for touching it, and that
// nobody can resize.
func newSegment(size int) (fd int, mem []byte, err error) {
	fd, err = unix.MemfdCreate("sansock", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, nil, noMemory(err)
	}
	if err = unix.Ftruncate(fd, int64(size)); err == nil {
		err = eintr(func() error { return unix.Fallocate(fd, 0, 0, int64(size)) })
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err == nil {
		mem, err = mapSegment(fd, size)
	}
	if err != nil {
		unix.Close(fd)
		return -1, nil, noMemory(err)
	}
	return fd, mem, nil
}

func mapSegment(fd, size int) ([]byte, error) {
	flags := unix.MAP_SHARED
	if size >= ownSegment {
		flags |= unix.MAP_POPULATE // a buffer for bulk, that will be used from end to end
	}
	return unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, flags)
}

// openSegment maps the peer's memory, after it has made sure that touching it is safe for ever.
func openSegment(fd, size int) ([]byte, error) {
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || got&seals != seals || got&(unix.F_SEAL_WRITE|unix.F_SEAL_FUTURE_WRITE) != 0 {
		return nil, fmt.Errorf("memory with seals %#x (%v)", got, err)
	}
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	// Huge pages may be promised and then not be there.
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
		return nil, fmt.Errorf("memory of file system %#x (%v)", fs.Type, err)
	}
	if size <= 0 || size > maxSegment || st.Size != int64(size) || st.Blocks*512 < int64(size) {
		return nil, fmt.Errorf("%d bytes of memory, %d of them there, announced as %d", st.Size, st.Blocks*512, size)
	}
	return mapSegment(fd, size)
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
