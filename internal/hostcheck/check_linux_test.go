package hostcheck

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"sansock/internal/hosttest"
)

func TestSharedMemory(t *testing.T) {
	before, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	require.NoError(t, SharedMemory())
	after, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	assert.Len(t, after, len(before), "nothing is left open")
}

func TestSharedMemoryRefused(t *testing.T) {
	for i, c := range []struct {
		rule hosttest.Rule
		want string // "": it is no refusal
	}{
		{hosttest.Rule{Call: unix.SYS_SOCKET, First: unix.AF_UNIX, Errno: unix.EAFNOSUPPORT},
			"sockets of the family AF_UNIX are refused: address family not supported by protocol"},
		{hosttest.Rule{Call: unix.SYS_MEMFD_CREATE, Any: true, Errno: unix.EPERM}, "memfd_create is refused: operation not permitted"},
		{hosttest.Rule{Call: unix.SYS_MEMFD_CREATE, Any: true, Errno: unix.ENOSYS}, "memfd_create is refused: function not implemented"},
		{hosttest.Rule{Call: unix.SYS_FTRUNCATE, Any: true, Errno: unix.EPERM}, "memory that can be shared is refused: operation not permitted"},
		{hosttest.Rule{Call: unix.SYS_MEMFD_CREATE, Any: true, Errno: unix.EMFILE}, ""},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			hosttest.Run(t, hosttest.Host{}, func(t *testing.T) {
				hosttest.Forbid(t, c.rule)
				err := SharedMemory()
				if c.want == "" {
					assert.NoError(t, err)
					return
				}
				assert.EqualError(t, err, c.want)
				assert.ErrorIs(t, err, c.rule.Errno)
			})
		})
	}
}

func TestSharedMemoryOfSmallFiles(t *testing.T) {
	hosttest.Run(t, hosttest.Host{}, func(t *testing.T) {
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4096, Max: 4096}))
		assert.EqualError(t, SharedMemory(),
			"the limit on the size of files, RLIMIT_FSIZE, is 4096 bytes, and shared memory needs 4194304: file too large")
	})
}

func BenchmarkSharedMemory(b *testing.B) {
	for b.Loop() {
		SharedMemory()
	}
}
