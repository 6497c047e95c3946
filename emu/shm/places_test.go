//go:build linux

package shm

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A socket that a dead process has left in the directory makes room, and one that lives does not.
func TestStaleSocket(t *testing.T) {
	n := Open(Config{Space: "x", Dir: t.TempDir()})
	defer n.Close()
	path := n.path(netip.MustParseAddrPort("10.0.0.1:80"))
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: path})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	_, err = listenPath(path)
	require.ErrorIs(t, err, unix.EADDRINUSE)
	require.NoError(t, l.Close())
	again, err := listenPath(path)
	require.NoError(t, err)
	require.NoError(t, again.Close())
	require.NoFileExists(t, path)
}

// A socket from another network namespace proves nothing here, nor does one of another port or protocol, or a connection.
func TestProof(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	at := l.Addr().(*net.TCPAddr).AddrPort()
	check := func(f interface{ File() (*os.File, error) }, a netip.AddrPort) error {
		x, err := f.File()
		require.NoError(t, err)
		defer x.Close()
		return serves(int(x.Fd()), spot{a, whereNetwork})
	}
	require.NoError(t, check(l.(*net.TCPListener), at))
	require.Error(t, check(l.(*net.TCPListener), netip.AddrPortFrom(at.Addr(), at.Port()+1)))
	require.Error(t, check(l.(*net.TCPListener), netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), at.Port())))
	c, err := net.Dial("tcp4", at.String())
	require.NoError(t, err)
	defer c.Close()
	require.Error(t, check(c.(*net.TCPConn), c.LocalAddr().(*net.TCPAddr).AddrPort()), "a connection")
	u, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer u.Close()
	require.Error(t, check(u, u.LocalAddr().(*net.UDPAddr).AddrPort()), "another protocol")
	all, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	defer all.Close()
	port := all.Addr().(*net.TCPAddr).AddrPort().Port()
	require.NoError(t, check(all.(*net.TCPListener), netip.AddrPortFrom(at.Addr(), port)), "it listens at all addresses")
	fd, err := bindTCP(at)
	require.ErrorIs(t, err, unix.EADDRINUSE, "the port is another's: %d", fd)
}

// The same port of another network namespace is not the one that is dialed.
func TestProofOfAnotherNetwork(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("NOT RUN: a network namespace can be made by root only")
	}
	at := freeAddr(t)
	got := make(chan int)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		if unix.Unshare(unix.CLONE_NEWNET) != nil {
			got <- -1
			return
		}
		fd, err := bindTCP(netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port()))
		if err != nil {
			fd = -1
		}
		got <- fd
	}()
	fd := <-got
	require.GreaterOrEqual(t, fd, 0)
	defer unix.Close(fd)
	require.Error(t, serves(fd, spot{at, whereNetwork}))
	require.NoError(t, serves(fd, spot{at, whereDir}), "which does not matter where containers meet")
}

func TestGroupLimit(t *testing.T) {
	files := map[string]string{
		"/cg/a/b/memory.max": "max\n", "/cg/a/memory.max": "1000\n",
		"/cg/memory/x/memory.limit_in_bytes": "700\n", "/cg/memory/memory.limit_in_bytes": "9223372036854771712\n",
	}
	read := func(p string) ([]byte, error) {
		if s, ok := files[p]; ok {
			return []byte(s), nil
		}
		return nil, os.ErrNotExist
	}
	require.EqualValues(t, 1000, groupLimit("0::/a/b\n", "/cg", read))
	require.EqualValues(t, 700, groupLimit("5:cpu:/x\n4:memory:/x\n", "/cg", read))
	require.Equal(t, int64(1<<63-1), groupLimit("0::/\nnonsense\n", "/cg", read))
}
