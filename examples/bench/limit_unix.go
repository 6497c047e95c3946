//go:build unix

package main

import "syscall"

// descriptorLimit is how many descriptors this process, and others that it starts, may have. The Go runtime has
// raised it as far as it may.
func descriptorLimit() int {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return maxDescriptors
	}
	return int(min(uint64(r.Cur), maxDescriptors))
}
