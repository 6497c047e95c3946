//go:build linux && (amd64 || arm64) && !purego

package shm

// pause leaves the core to its other thread, and the memory alone, n times; n is not 0.
//
//go:noescape
func pause(n uint32)
