package sanswitch

import "golang.org/x/sys/unix"

// boundToDevice reports whether a socket takes part in the traffic of one device alone.
func boundToDevice(fd int) bool {
	name, err := unix.GetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE)
	return err == nil && name != ""
}
