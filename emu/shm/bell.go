//go:build linux

package shm

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A doorbell is a pair of connected sockets. Who sleeps keeps one end, and waits for it in the netpoller; who rings has the
// other, and shuts it down for writing, time and again. Each call is a new edge for the netpoller. It carries no data, so that
// there is nothing to read and nothing that fills up, and it never waits, whatever flags the peer, who shares the
// socket, may set.
//
// Two ends of one pair are not used in both directions: a call is an edge for the caller's own end, too.

// newBell returns the end that is waited for, and the end that the peer gets.
func newBell() (*os.File, int, error) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, -1, err
	}
	return os.NewFile(uintptr(p[0]), "doorbell"), p[1], nil
}

// checkBell makes sure that fd is a socket of the kind on which ringing takes no time.
func checkBell(fd int) error {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return err
	}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return err
	}
	if domain != unix.AF_UNIX || kind != unix.SOCK_SEQPACKET {
		return errors.New("a doorbell that is none")
	}
	return nil
}

// ringBell makes the netpoller of whoever waits for the other end see an edge.
func ringBell(fd int) { unix.Shutdown(fd, unix.SHUT_WR) }

// closeTime is how long closeForeign waits for descriptors that are what they should be.
const closeTime = 100 * time.Millisecond

// closeForeign closes descriptors that come from another process, in a goroutine of its own: that may take as long as the other
// likes, as with a TCP socket that lingers, or a file of a file system that the other serves. It is never called
// in a caller's goroutine, or with a lock held.
func closeForeign(fds ...int) {
	if len(fds) == 0 {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, fd := range fds {
			if fd >= 0 {
				unix.Close(fd)
			}
		}
	}()
	t := time.NewTimer(closeTime)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}
