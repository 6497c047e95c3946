package sannet_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"sansock/internal/hosttest"
	"sansock/sannet"
	sanswitch "sansock/switch"
)

// In a sandbox that refuses what shared memory takes, connections between processes go over TCP,
// and say why; those within the process are over the SAN. The program can know that from the
// start.
func TestSandbox(t *testing.T) {
	for i, c := range []struct {
		rule hosttest.Rule
		want string
	}{
		{hosttest.Rule{Call: unix.SYS_SOCKET, First: unix.AF_UNIX, Errno: unix.EAFNOSUPPORT},
			"sockets of the family AF_UNIX are refused: address family not supported by protocol"},
		{hosttest.Rule{Call: unix.SYS_MEMFD_CREATE, Any: true, Errno: unix.EPERM}, "memfd_create is refused: operation not permitted"},
		{hosttest.Rule{}, "the limit on the size of files, RLIMIT_FSIZE, is 4096 bytes, and shared memory needs 4194304: file too large"},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			hosttest.Run(t, hosttest.Host{}, func(t *testing.T) {
				if c.rule.Errno != 0 {
					hosttest.Forbid(t, c.rule)
				} else {
					require.NoError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4096, Max: 4096}))
				}
				assert.Equal(t, "emu: within this process alone: "+c.want, sannet.Providers()[0].String())
				assert.Equal(t, "san via emu", pathTo(t, "127.0.0.1:"+serveAll(t, "127.0.0.1:0")))

				// As between processes, to one that is not confined as far as sockets go.
				p := shmPath(t)
				l, err := p.listen("tcp", "127.0.0.1:0")
				require.NoError(t, err)
				defer l.Close()
				conn, err := p.dial(t.Context(), "tcp", l.Addr().String())
				require.NoError(t, err)
				defer conn.Close()
				info, ok := sannet.InfoOf(conn)
				require.True(t, ok)
				assert.Equal(t, sanswitch.ReasonSystem.String(), info.Reason.String())
				assert.Contains(t, info.String(), "tcp: the system does not allow what the SAN needs ("+c.want)
				_, err = p.dial(t.Context(), "san", l.Addr().String())
				assert.ErrorContains(t, err, c.want)
			})
		})
	}
}
