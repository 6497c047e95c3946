//go:build linux

package shm

import (
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// soPassRights is SO_PASSRIGHTS, off: who sends a descriptor to the socket gets an error. Linux has it since 6.16. Without it
// nobody can keep the other from sending descriptors; they are not received then, but closed by the kernel when it throws them away, in
// the goroutine that receives or closes, and for as long as that takes. So these are never a caller's.
const soPassRights = 83

// passRights says whether descriptors may come in over conn.
func passRights(conn *net.UnixConn, may bool) { setOption(conn, soPassRights, may) }

// passCreds says whether each packet that is received bears the credentials of its sender.
func passCreds(conn *net.UnixConn, may bool) { setOption(conn, unix.SO_PASSCRED, may) }

func setOption(conn *net.UnixConn, option int, on bool) {
	if rc, err := conn.SyscallConn(); err == nil {
		rc.Control(func(fd uintptr) { setOptionFD(int(fd), option, on) })
	}
}

func setOptionFD(fd, option int, on bool) {
	v := 0
	if on {
		v = 1
	}
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, v)
}

// rightsStay reports whether the kernel keeps descriptors out.
var rightsStay = sync.OnceValue(func() bool {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	_, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, soPassRights)
	return err == nil
})

// closeConn closes a connection to another process: at once where nothing of the other's can be in it, and else in a goroutine
// of its own, as for closeForeign.
func closeConn(conn *net.UnixConn) {
	if rightsStay() {
		conn.Close()
		return
	}
	go conn.Close()
}

// overflowUID is what users look like that our user namespace does not have. It may be anybody.
var overflowUID = sync.OnceValue(func() uint32 {
	b, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if n, perr := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 32); err == nil && perr == nil {
		return uint32(n)
	}
	return 65534
})

// connected returns the credentials of the process that has connected to us.
func connected(conn *net.UnixConn) (p Peer, err error) {
	rc, err := conn.SyscallConn()
	if err != nil {
		return p, err
	}
	var c *unix.Ucred
	if cerr := rc.Control(func(fd uintptr) {
		c, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); cerr != nil {
		return p, cerr
	}
	if err != nil {
		return p, err
	}
	return Peer{PID: int(c.Pid), UID: c.Uid, GID: c.Gid}, nil
}

// signed is what a packet bears that says who we are now: a process that listens may have been another user when it began to.
func signed() []byte {
	return unix.UnixCredentials(&unix.Ucred{Pid: int32(os.Getpid()), Uid: uint32(os.Geteuid()), Gid: uint32(os.Getegid())})
}

// signature reads a packet of a fixed size and the credentials of its sender. There is room for nothing else.
func signature(conn *net.UnixConn, b []byte) (n int, p Peer, err error) {
	oob := make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	n, k, flags, _, err := conn.ReadMsgUnix(b, oob)
	if err != nil {
		return 0, p, err
	}
	if n == 0 || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		return 0, p, errWire
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:k])
	if err != nil || len(msgs) != 1 {
		return 0, p, errWire
	}
	c, err := unix.ParseUnixCredentials(&msgs[0])
	if err != nil {
		return 0, p, errWire
	}
	return n, Peer{PID: int(c.Pid), UID: c.Uid, GID: c.Gid}, nil
}

// letter reads a packet of a peer that is trusted, with the descriptors that it bears. Whatever they are, they are the caller's.
func letter(conn *net.UnixConn) (b []byte, files []int, err error) {
	b = make([]byte, maxControl)
	oob := make([]byte, unix.CmsgSpace(4*maxFiles))
	n, k, flags, _, err := conn.ReadMsgUnix(b, oob)
	files = rights(oob[:k])
	if err == nil && (n == 0 || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0) {
		err = errWire
	}
	if err != nil {
		closeForeign(files...)
		return nil, nil, err
	}
	return b[:n], files, nil
}

// rights are the descriptors that came with a packet.
func rights(oob []byte) (files []int) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range msgs {
		if fds, err := unix.ParseUnixRights(&msgs[i]); err == nil {
			files = append(files, fds...)
		}
	}
	return files
}
