package hostcheck

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// largestFile is the size of the largest segment of shared memory, which counts as a file.
const largestFile = 4 << 20

// SharedMemory returns what keeps this process from sharing memory with others: system calls that
// a sandbox refuses, or a limit. It does what is needed once, in a few microseconds, so that the
// answer is that of now. The error wraps the system's.
func SharedMemory() error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return refused("sockets of the family AF_UNIX are refused", err)
	}
	unix.Close(fd)
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &files); err == nil && files.Cur < largestFile {
		const text = "the limit on the size of files, RLIMIT_FSIZE, is %d bytes, and shared memory needs %d: %w"
		return fmt.Errorf(text, files.Cur, largestFile, unix.EFBIG)
	}
	fd, err = unix.MemfdCreate("sansock-check", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return refused("memfd_create is refused", err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 1); err != nil {
		return refused("memory that can be shared is refused", err)
	}
	b, err := unix.Mmap(fd, 0, 1, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return refused("mapping shared memory is refused", err)
	}
	unix.Munmap(b)
	return nil
}

// refused is the error of what the system refuses, nil where it is but a lack of descriptors or
// memory, which passes.
func refused(what string, err error) error {
	for _, lack := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS} {
		if errors.Is(err, lack) {
			return nil
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}
