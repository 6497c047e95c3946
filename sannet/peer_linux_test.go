package sannet_test

import (
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/sannet"
)

// remotePair returns a connection to a process of its own.
func remotePair(t *testing.T) (*sannet.Conn, net.Conn, *child) {
	c := startChild(t)
	l, err := c.listen(true, "san", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	conn, err := dialWith(newSwitch(t, true))(t.Context(), sannet.Dialer{}, "san", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	end, err := l.Accept()
	require.NoError(t, err)
	return conn.(*sannet.Conn), end, c
}

// soon is like a test that does not hang.
func soon[T any](t *testing.T, ch <-chan T) (v T) {
	select {
	case v = <-ch:
	case <-time.After(stuck):
		t.Fatal("nothing happens")
	}
	return v
}

// TestPeerStops: a peer whose process is stopped does not answer, and is given up. When it goes on, it sees a reset.
func TestPeerStops(t *testing.T) {
	for _, what := range []string{"read", "small write", "large write"} {
		t.Run(what, func(t *testing.T) {
			c, end, other := remotePair(t)
			k := net.KeepAliveConfig{Enable: true, Idle: 20 * time.Millisecond, Interval: 20 * time.Millisecond, Count: 3}
			// One that answers is not given up.
			require.NoError(t, c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: time.Millisecond, Interval: time.Second, Count: 3}))
			require.NoError(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
			_, err := c.Read(make([]byte, 1))
			require.ErrorContains(t, err, "i/o timeout")
			require.NoError(t, c.SetReadDeadline(time.Time{}))

			require.NoError(t, c.SetKeepAliveConfig(net.KeepAliveConfig{}))
			require.NoError(t, other.cmd.Process.Signal(syscall.SIGSTOP))
			defer other.cmd.Process.Signal(syscall.SIGCONT)
			failed := make(chan error, 1)
			go func() {
				var err error
				for err == nil {
					switch what {
					case "read":
						_, err = c.Read(make([]byte, 1))
					case "small write":
						_, err = c.Write(make([]byte, 100))
					default:
						_, err = c.Write(zeros(1 << 20))
					}
				}
				failed <- err
			}()
			require.NoError(t, c.SetKeepAliveConfig(k))
			err = soon(t, failed)
			assert.ErrorIs(t, err, syscall.ETIMEDOUT)
			assert.True(t, err.(net.Error).Timeout())

			require.NoError(t, other.cmd.Process.Signal(syscall.SIGCONT))
			_, err = io.Copy(io.Discard, end)
			assert.ErrorIs(t, err, syscall.ECONNRESET)
			end.Close()
		})
	}
}

// TestPeerDies: what a process had written before it was killed is read, and then the end, as with TCP.
func TestPeerDies(t *testing.T) {
	c, end, other := remotePair(t)
	_, err := end.Write([]byte("last words"))
	require.NoError(t, err)
	other.gone = true
	require.NoError(t, other.cmd.Process.Kill())
	got, err := io.ReadAll(c)
	assert.Equal(t, "last words", string(got))
	assert.NoError(t, err)
	_, err = c.Write([]byte("x"))
	assert.NoError(t, err)
	_, err = c.Write([]byte("x"))
	assert.ErrorIs(t, err, syscall.EPIPE)
}

// TestPeerLeaves: a process that ends right after it has written has delivered that, whether it has closed the connection
// or not.
func TestPeerLeaves(t *testing.T) {
	for _, san := range []bool{false, true} {
		network := map[bool]string{false: "tcp", true: "san"}[san]
		for _, closed := range []bool{true, false} {
			sizes := [][2]int{{2000, 100}, {33, 33}, {1, 100_000}, {50, 10_000}}
			if !san {
				sizes = sizes[:1] // a process each takes time
			}
			for _, size := range sizes {
				t.Run(fmt.Sprint(san, closed, size), func(t *testing.T) {
					other := startChild(t)
					other.gone = true
					v := other.call(0, "Leave", san, size[0], size[1], closed)
					require.NoError(t, v[1].(wireError).error())
					c, err := dialWith(newSwitch(t, san))(t.Context(), sannet.Dialer{}, network, v[0].(wireAddr).addr().String())
					require.NoError(t, err)
					defer c.Close()
					_, over := c.(*sannet.Conn)
					assert.Equal(t, san, over)
					n, err := io.Copy(io.Discard, c)
					assert.NoError(t, err)
					assert.EqualValues(t, size[0]*size[1], n)
				})
			}
		}
	}
}
