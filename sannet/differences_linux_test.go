package sannet_test

import (
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestDifferences shows what the package comment says to be different, so that it is known when that changes. What has to do
// with other processes is in TestPeerStops and the tests beside it, what a Conn does not have in TestMethods.
func TestDifferences(t *testing.T) {
	for _, newPath := range []func(testing.TB) path{tcpPath, sanPath} {
		p := newPath(t)
		tcp := p.name == "tcp"
		t.Run(p.name, func(t *testing.T) {
			pair := func(t *testing.T) (conn, conn) { return (&script{T: t, path: p, names: new(names)}).pair() }
			t.Run("data after CloseRead", func(t *testing.T) {
				c, sv := pair(t)
				require.NoError(t, c.CloseRead())
				_, err := sv.Write([]byte("late"))
				require.NoError(t, err)
				require.NoError(t, sv.CloseWrite())
				n, err := c.Read(make([]byte, 9))
				if tcp {
					assert.Equal(t, 4, n)
				} else {
					assert.Equal(t, io.EOF, err)
				}
			})
			t.Run("writes to a peer that has called CloseRead", func(t *testing.T) {
				c, sv := pair(t)
				require.NoError(t, c.CloseRead())
				require.NoError(t, sv.SetWriteDeadline(time.Now().Add(200*time.Millisecond)))
				for range 16 {
					_, err := sv.Write(zeros(4 << 20))
					if err != nil {
						assert.True(t, tcp, "%v", err)
						return
					}
					if !tcp {
						sv.SetWriteDeadline(future())
					}
				}
				assert.False(t, tcp)
			})
			t.Run("vectored writes", func(t *testing.T) {
				c, _ := pair(t)
				require.NoError(t, c.SetDeadline(past))
				bufs := net.Buffers{[]byte("a"), []byte("b")}
				_, err := bufs.WriteTo(c)
				assert.Equal(t, map[bool]string{true: "writev", false: "write"}[tcp], err.(*net.OpError).Op)
			})
			t.Run("files as the source", func(t *testing.T) {
				c, _ := pair(t)
				require.NoError(t, c.CloseWrite())
				f, err := os.Open(os.Args[0])
				require.NoError(t, err)
				defer f.Close()
				_, err = c.ReadFrom(f)
				assert.ErrorIs(t, err, syscall.EPIPE)
				assert.ErrorContains(t, err, map[bool]string{true: ": sendfile: ", false: ": write: "}[tcp])
			})
			t.Run("memory that is not there", func(t *testing.T) {
				if !tcp {
					t.Skip("ends the program")
				}
				b, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
				require.NoError(t, err)
				defer unix.Munmap(b)
				c, _ := pair(t)
				_, err = c.Write(b)
				assert.ErrorIs(t, err, syscall.EFAULT)
			})
			t.Run("listener", func(t *testing.T) {
				l, err := p.listen("tcp", "127.0.0.1:0")
				require.NoError(t, err)
				defer l.Close()
				_, ok := l.(*net.TCPListener)
				assert.Equal(t, tcp, ok)
			})
		})
	}
}
