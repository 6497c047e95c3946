package remote

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"sansock/emu"
	"sansock/provider"
	"sansock/provider/providertest"
)

// serve is set in the environment of the other process.
const serve = "SANSOCK_REMOTE"

// shape keeps the rules about limits short, as every call takes a while.
var shape = emu.Config{MaxRDMA: 1 << 20, MaxRecvs: 256, MaxSends: 128, MaxRDMAs: 32}

const shared = 256 << 20 // address space, of which little is used

// child is the other process: it has the socket and the shared memory as descriptors 3 and 4.
func child() int {
	conn, err := net.FileConn(os.NewFile(3, "socket"))
	if err == nil {
		var mem []byte
		if mem, err = unix.Mmap(4, 0, shared, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
			var p provider.Provider
			if p, err = emu.New(shape); err == nil {
				err = Serve(conn, p, mem)
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// process is the other process as seen from here.
type process struct {
	cmd  *exec.Cmd
	conn net.Conn
	mem  []byte
	*Provider
}

func start(t *testing.T) *process {
	exe, err := os.Executable()
	require.NoError(t, err)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	here, there := os.NewFile(uintptr(fds[0]), "here"), os.NewFile(uintptr(fds[1]), "there")
	defer here.Close()
	defer there.Close()
	fd, err := unix.MemfdCreate("providertest", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	memory := os.NewFile(uintptr(fd), "memory")
	defer memory.Close()
	require.NoError(t, memory.Truncate(shared))
	x := &process{cmd: exec.Command(exe)}
	x.mem, err = unix.Mmap(fd, 0, shared, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	x.cmd.Env = append(os.Environ(), serve+"=1")
	x.cmd.Stderr = os.Stderr
	x.cmd.ExtraFiles = []*os.File{there, memory}
	require.NoError(t, x.cmd.Start())
	x.conn, err = net.FileConn(here)
	require.NoError(t, err)
	x.Provider, err = New(x.conn, x.mem)
	require.NoError(t, err)
	return x
}

// stop ends the other process.
func (x *process) stop(t *testing.T) {
	if x == nil {
		return
	}
	x.conn.Close()
	require.NoError(t, x.cmd.Wait())
	require.NoError(t, unix.Munmap(x.mem))
}

// TestTwoProcesses runs the suite with the ends in two processes. Most rules take each end in each part.
func TestTwoProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a process for each rule")
	}
	if raceDetector {
		t.Skip("the race detector does not see the order that the other process makes")
	}
	var far *process
	defer func() { far.stop(t) }()
	providertest.Run(t, providertest.Config{
		Rounds: 20,
		Waive:  waived,
		Open: func() (dialer, listener provider.Provider, err error) {
			far.stop(t)
			far = start(t)
			near, err := emu.New(shape)
			return near, far, err
		},
		Memory: func(p provider.Provider, n int) []byte {
			if p == provider.Provider(far) {
				return far.Provider.Memory(n)
			}
			return make([]byte, n)
		},
	})
}
