//go:build linux

package shm

import (
	"sync/atomic"
	"unsafe"
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
