//go:build linux

package shm

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// words are the atomic words of shared memory, which begins at a multiple of eight. All that is not the content of
// messages is accessed so: both processes may write, and one of them may be hostile.
func words(b []byte) []atomic.Uint64 {
	return unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}

// within reports whether inner lies in outer, and where.
func within(outer, inner []byte) (off int, ok bool) {
	if len(inner) == 0 {
		return 0, true
	}
	// Below outer the difference wraps round and is larger than any length.
	d := uintptr(unsafe.Pointer(unsafe.SliceData(inner))) - uintptr(unsafe.Pointer(unsafe.SliceData(outer)))
	if d > uintptr(len(outer)) || len(inner) > len(outer)-int(d) {
		return 0, false
	}
	return int(d), true
}

var one uint64 = 1

// ring adds to the counter of an eventfd that does not block. The scheduler is not told, as it takes no time.
func ring(fd int) {
	unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&one)), 8)
}
