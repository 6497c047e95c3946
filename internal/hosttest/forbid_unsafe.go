//go:build linux

package hosttest

import (
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rule is a system call that a process may not make any more.
type Rule struct {
	Call  uintptr    // its number
	First uint32     // its first argument, where Any is false
	Any   bool       // with any arguments
	Errno unix.Errno // what it returns
}

// Forbid makes the rules hold for all threads of this process, as a sandbox does, for the rest of
// its life.
func Forbid(t *testing.T, rules ...Rule) {
	t.Helper()
	// Offsets in the data that a filter sees: of an argument, the lower half on a little-endian host.
	const number, firstArgument = 0, 16
	stmt := func(code uint16, k uint32) unix.SockFilter { return unix.SockFilter{Code: code, K: k} }
	jump := func(k uint32, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: no, K: k}
	}
	const load, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_RET | unix.BPF_K
	var prog []unix.SockFilter
	for _, r := range rules {
		fail := stmt(ret, unix.SECCOMP_RET_ERRNO|uint32(r.Errno))
		prog = append(prog, stmt(load, number))
		if r.Any {
			prog = append(prog, jump(uint32(r.Call), 1), fail)
		} else {
			prog = append(prog, jump(uint32(r.Call), 3),
				stmt(load, firstArgument), jump(r.First, 1), fail)
		}
	}
	prog = append(prog, stmt(ret, unix.SECCOMP_RET_ALLOW))
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	f := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&f)))
	runtime.KeepAlive(prog)
	if errno != 0 {
		t.Skipf("*** NOT RUN: no filter for system calls: %v ***", errno)
	}
}
