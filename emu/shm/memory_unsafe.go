//go:build linux

package shm

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// words are the atomic words of shared memory, which begins at a multiple of eight. All that is not the content of
// messages is accessed so: both processes may write, and one of them may be hostile.
//
// Who sleeps stores that he does, and then looks for events; who has an event stores it, and then looks for sleepers. These
// stores have to be ordered before the loads that follow. They are made with Swap: of memory that is not the
// runtime's own, the race detector makes a Store that a processor may delay until after the load. The places
// are marked "see words".
func words(b []byte) []atomic.Uint64 {
	return unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}

var nothing uint64

// ringBell makes the netpoller of whoever waits for an eventfd see an edge. Adding nothing does that, too, and cannot fill the
// counter, in front of which the write would block: the peer may have taken O_NONBLOCK away, as flags are shared with the
// descriptor. The scheduler is told all the same, as the kernel may add to the counter on behalf of the peer.
func ringBell(fd int) {
	unix.Syscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&nothing)), 8)
}
