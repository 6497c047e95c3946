package sannet_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"sansock/sannet"
	sanswitch "sansock/switch"
)

// nobody is a user who is not us.
const nobody = 65534

// Limit sets a limit of the child.
func (r *childRoot) Limit(resource int, n uint64) error {
	var l unix.Rlimit
	if err := unix.Getrlimit(resource, &l); err != nil {
		return err
	}
	l.Cur = n
	return unix.Setrlimit(resource, &l)
}

// Leave descriptors to the child, so many.
func (r *childRoot) LeaveFiles(n int) error {
	var free []int
	for range n {
		fd, err := unix.Dup(0)
		if err != nil {
			return err
		}
		free = append(free, fd)
	}
	err := exhaust(true)
	for _, fd := range free {
		unix.Close(fd)
	}
	return err
}

// SmallShm gives the child a /dev/shm of one page.
func (r *childRoot) SmallShm() error {
	return unix.Mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=4k")
}

// LoopbackUp brings up the loopback interface of the child's network namespace.
func (r *childRoot) LoopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}

// Dial connects, reads one byte, and tells of the path.
func (r *childRoot) Dial(address string) (path string, err error) {
	c, err := dialWith(r.sw)(context.Background(), sannet.Dialer{Timeout: stuck}, "tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err = io.ReadFull(c, make([]byte, 1)); err != nil {
		return "", err
	}
	return pathAndReason(c), nil
}

// pathAndReason is the path of a connection, and why.
func pathAndReason(c net.Conn) string {
	info, ok := sannet.InfoOf(c)
	if !ok {
		return "not known"
	}
	return fmt.Sprintf("%v: %v", info.Path, info.Reason)
}

func (c *child) do(method string, args ...any) error {
	v := c.call(0, method, args...)
	return v[len(v)-1].(wireError).error()
}

// hasDialed has the child dial l, and returns its path.
func (c *child) hasDialed(t *testing.T, l net.Listener) string {
	go func() {
		if sv, err := l.Accept(); err == nil {
			sv.Write([]byte("x"))
			io.Copy(io.Discard, sv)
			sv.Close()
		}
	}()
	v := c.call(0, "Dial", l.Addr().String())
	require.NoError(t, v[1].(wireError).error())
	return v[0].(string)
}

// isDialed dials the child, and returns the path.
func (c *child) isDialed(t *testing.T, sw *sanswitch.Switch) string {
	l, err := c.listen(true, "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	conn, err := dialWith(sw)(t.Context(), sannet.Dialer{Timeout: stuck}, "tcp", l.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	sv, err := l.Accept()
	require.NoError(t, err)
	defer sv.Close()
	_, err = sv.Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(stuck)))
	_, err = io.ReadFull(conn, make([]byte, 1))
	require.NoError(t, err)
	return pathAndReason(conn)
}

// startChildAs starts a child with other attributes, for which one has to be root mostly.
func startChildAs(t *testing.T, attr *syscall.SysProcAttr) *child {
	if attr != nil {
		probe := exec.Command("/proc/self/exe")
		probe.Env = append(os.Environ(), childEnv+"=1")
		probe.SysProcAttr = attr
		if err := probe.Run(); errors.Is(err, os.ErrPermission) {
			t.Skip("it takes root: ", err)
		}
	}
	return startChildWith(t, func(cmd *exec.Cmd) {
		cmd.Path = "/proc/self/exe" // the directory of the test binary may be closed to other users
		cmd.SysProcAttr = attr
	})
}

// TestSurroundings: processes that lack something, or live elsewhere, are reached over the SAN where that works, and over TCP
// with the reason where it does not.
func TestSurroundings(t *testing.T) {
	const san = "san: SAN works"
	for _, c := range []struct {
		name          string
		attr          *syscall.SysProcAttr
		prepare       func(*child) error
		dials, dialed string // the child does, or is
	}{
		{name: "nothing locked", prepare: func(c *child) error { return c.do("Limit", unix.RLIMIT_MEMLOCK, uint64(0)) },
			dials: san, dialed: san},
		{name: "no large files", prepare: func(c *child) error { return c.do("Limit", unix.RLIMIT_FSIZE, uint64(4096)) },
			dials: "tcp: the system does not allow what the SAN needs", dialed: "tcp: no memory for the SAN"},
		{name: "small /dev/shm", attr: &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS},
			prepare: func(c *child) error { return c.do("SmallShm") }, dials: san, dialed: san},
		{name: "few descriptors", prepare: func(c *child) error { return c.do("LeaveFiles", 3) },
			dials: "tcp: no memory for the SAN"},
		{name: "another user", attr: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}},
			dials: "tcp: listener on the SAN belongs to another user", dialed: "tcp: listener on the SAN belongs to another user"},
		{name: "other namespaces, but that of the network",
			attr:  &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS, Unshareflags: unix.CLONE_NEWNS},
			dials: san, dialed: san},
	} {
		t.Run(c.name, func(t *testing.T) {
			child := startChildAs(t, c.attr)
			sw := newSwitch(t, true)
			l, err := listenWith(sw)("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer l.Close()
			if c.prepare != nil {
				if err := c.prepare(child); errors.Is(err, os.ErrPermission) {
					t.Skip(err)
				} else {
					require.NoError(t, err)
				}
			}
			assert.Equal(t, c.dials, child.hasDialed(t, l), "the child dials")
			if c.dialed != "" {
				assert.Equal(t, c.dialed, child.isDialed(t, sw), "the child is dialed")
			}
		})
	}
}

// TestContainer: another network namespace has the same addresses, and nobody there is mistaken for somebody here.
func TestContainer(t *testing.T) {
	child := startChildAs(t, &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWPID, Unshareflags: unix.CLONE_NEWNS})
	require.NoError(t, child.do("LoopbackUp"))
	here, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer here.Close()
	there, err := child.listen(true, "tcp", here.Addr().String())
	require.NoError(t, err)
	defer there.Close()
	c, err := dialWith(newSwitch(t, true))(t.Context(), sannet.Dialer{}, "tcp", here.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	assert.Equal(t, "tcp: no listener on the SAN", pathAndReason(c))
	sv, err := here.Accept()
	require.NoError(t, err)
	defer sv.Close()
	assert.Equal(t, c.LocalAddr().String(), sv.RemoteAddr().String())
}
