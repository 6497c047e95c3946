//go:build linux

package probe

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// get returns the value of the option as it is, or the error of the kernel.
func (o option) get(fd int) (value string, ok bool) {
	var buf [64]byte
	n := uint32(len(buf))
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(o.level), uintptr(o.num),
		uintptr(unsafe.Pointer(&buf)), uintptr(unsafe.Pointer(&n)), 0)
	if errno != 0 {
		return errno.Error(), false
	}
	return string(buf[:min(int(n), len(buf))]), true
}
