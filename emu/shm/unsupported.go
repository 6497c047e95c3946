//go:build !linux || mips || mipsle || (arm && !arm.7)

package shm

// Supported tells whether this system has what the package needs: Linux, and 64-bit atomic operations on memory that another
// process has, which are made with a lock of this process on some 32-bit processors.
const Supported = false
