package sannet_test

import (
	"fmt"
	"syscall"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// blackHole returns an address of this host at which a dial over TCP waits: that of a listener whose backlog is full.
func (s *script) blackHole() string {
	open := func() int {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		require.NoError(s, err)
		s.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	l := open()
	require.NoError(s, unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(s, unix.Listen(l, 0))
	a, err := unix.Getsockname(l)
	require.NoError(s, err)
	// Connected ones are taken from the backlog, until one is not.
	for range 16 {
		fd := open()
		if err := unix.Connect(fd, a); err != syscall.EINPROGRESS {
			require.NoError(s, err)
		}
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		if n, err := unix.Poll(p, 0); err == nil && n == 0 {
			address := fmt.Sprintf("127.0.0.1:%d", a.(*unix.SockaddrInet4).Port)
			s.rename(address, "HOLE")
			return address
		}
	}
	s.Fatal("the backlog is never full")
	return ""
}
