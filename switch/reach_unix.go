//go:build unix

package sanswitch

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// reachOf tells for whom the socket of ln is: the TCP network that it was made for, whatever its
// address says, and whether it takes connections from one device alone.
func reachOf(ln net.Listener) (tcp string, device bool) {
	sc, ok := ln.(syscall.Conn)
	if !ok {
		return "tcp", false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return "tcp", false
	}
	tcp = "tcp"
	raw.Control(func(fd uintptr) {
		// Not an option of IPv4 sockets.
		only, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_V6ONLY)
		if err == nil && only != 0 {
			tcp = "tcp6"
		}
		device = boundToDevice(int(fd))
	})
	return tcp, device
}
