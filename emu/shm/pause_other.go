//go:build linux && (purego || (!amd64 && !arm64))

package shm

// pause lets some time pass.
func pause(n uint32) {
	for range n * 20 {
	}
}
