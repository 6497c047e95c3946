//go:build linux

package shm

import (
	"context"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"sansock/provider"
)

// TestOtherVersion meets processes whose links are of the version before, or the next. There is no link, and TCP is tried.
func TestOtherVersion(t *testing.T) {
	at := netip.MustParseAddrPort("127.0.0.1:777")
	for _, v := range []uint8{version - 1, version + 1} {
		n := openSAN(t, Config{Space: space(t)}).Node
		l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: n.name(at)})
		require.NoError(t, err)
		dialed := make(chan error, 1)
		go func() {
			_, err := n.Dial(context.Background(), loopback, at)
			dialed <- err
		}()
		c, err := l.AcceptUnix()
		require.NoError(t, err)
		_, err = c.Write((&greeting{min: v, max: v}).append(nil, false))
		require.NoError(t, err)
		err = <-dialed
		require.Equal(t, provider.StatusLink, provider.StatusOf(err))
		require.ErrorContains(t, err, "another version")
		for _, hard := range []error{syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.EHOSTUNREACH} {
			require.NotErrorIs(t, err, hard)
		}
		c.Close()
		l.Close()

		r, err := n.Bind(at, refusing{})
		require.NoError(t, err)
		d, err := net.Dial("unixpacket", n.name(at))
		require.NoError(t, err)
		b := make([]byte, maxControl)
		k, err := d.Read(b)
		require.NoError(t, err)
		_, err = parseGreeting(b[:k], false)
		require.NoError(t, err)
		fd, err := unix.MemfdCreate("other", unix.MFD_CLOEXEC)
		require.NoError(t, err)
		opening := (&greeting{min: v, max: v, size: firstSegment}).append(nil, true)
		_, _, err = d.(*net.UnixConn).WriteMsgUnix(opening, unix.UnixRights(fd), nil)
		require.NoError(t, err)
		unix.Close(fd)
		_, err = d.Read(b)
		require.ErrorIs(t, err, io.EOF)
		d.Close()
		require.NoError(t, r.Close())
		require.Empty(t, n.links)
	}
}

// refusing takes no requests.
type refusing struct{}

func (refusing) Requested(*Request) error { return provider.StatusRefused }
func (refusing) Withdrawn(*Request)       {}
