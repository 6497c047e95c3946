//go:build linux && !mips && !mipsle && (!arm || arm.7)

package shm

// Supported tells whether this system has what the package needs.
const Supported = true
