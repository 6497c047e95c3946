//go:build ofi && cgo && linux

package ofi

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// sleeper lets one goroutine sleep in Go's network poller on a descriptor of the library's, and others wake it.
type sleeper struct {
	file   *os.File
	raw    syscall.RawConn
	kicked atomic.Bool
	timed  bool // there may be a deadline on file; the goroutine's own
}

// open prepares to sleep on fd, which remains the library's.
func (s *sleeper) open(fd int, name string) error {
	dup, err := fcntlDup(fd)
	if err != nil {
		return err
	}
	if err := syscall.SetNonblock(dup, true); err != nil {
		syscall.Close(dup)
		return err
	}
	s.file = os.NewFile(uintptr(dup), name)
	if s.raw, err = s.file.SyscallConn(); err == nil {
		err = s.file.SetReadDeadline(time.Time{}) // fails for what cannot be polled
	}
	if err != nil {
		s.file.Close()
	}
	return err
}

// fcntlDup duplicates fd for this process alone.
func fcntlDup(fd int) (int, error) {
	r, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, 0)
	if errno != 0 {
		return -1, os.NewSyscallError("fcntl", errno)
	}
	return int(r), nil
}

// sleep calls look, and again whenever the descriptor has become readable, until look returns true. A kick, or the end of
// the time limit if that is not 0, ends it as well.
func (s *sleeper) sleep(limit time.Duration, look func(fd uintptr) bool) {
	if limit > 0 {
		s.timed = true
		s.file.SetReadDeadline(time.Now().Add(limit))
	} else if s.timed {
		s.timed = false
		s.file.SetReadDeadline(time.Time{})
	}
	// A kick comes either before this, or its deadline after ours.
	if s.kicked.Swap(false) {
		s.timed = true
		return
	}
	if s.raw.Read(look) != nil {
		s.timed = true
	}
}

var longAgo = time.Unix(1, 0)

// kick wakes the sleeper, or keeps it from its next sleep.
func (s *sleeper) kick() {
	s.kicked.Store(true)
	s.file.SetReadDeadline(longAgo)
}

func (s *sleeper) close() { s.file.Close() }
