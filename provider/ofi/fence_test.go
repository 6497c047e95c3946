//go:build ofi && cgo && linux

package ofi

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sansock/provider"
)

// TestStalledWriter has another process stop in the middle of an RDMA write, and deregisters the memory meanwhile: from then
// on it must stay as it is, also when the writer goes on.
func TestStalledWriter(t *testing.T) {
	const size = 32 << 20
	if to := os.Getenv("OFI_TEST_WRITE_TO"); to != "" {
		stalledWriter(t, to, size)
		return
	}
	if testFabric != fabricTCP {
		t.Skip("a device's writes do not stop with the process")
	}
	defer func(d time.Duration) { fenceTime = d }(fenceTime)
	fenceTime = 200 * time.Millisecond
	p := opened(t)
	l, err := p.Listen(testAddr, 4)
	require.NoError(t, err)
	defer l.Close()
	exe, err := os.Executable()
	require.NoError(t, err)
	for try := 1; ; try++ {
		var log bytes.Buffer
		c := exec.Command(exe, "-test.run=^TestStalledWriter$")
		c.Env = append(os.Environ(), "OFI_TEST_WRITE_TO="+l.Addr().String())
		c.Stdout, c.Stderr = &log, &log
		require.NoError(t, c.Start())
		r, err := l.Accept()
		require.NoError(t, err)
		ep, err := r.Accept(t.Context())
		require.NoError(t, err)
		target := make([]byte, size)
		exposed, err := ep.Expose(target, provider.RightWrite)
		require.NoError(t, err)
		out, err := ep.Register(exposed.Descriptor[:])
		require.NoError(t, err)
		require.NoError(t, ep.PostSend(provider.Send{Local: out.Segment(0, len(out.Bytes))}))
		require.Equal(t, provider.OpSend, next(t, ep).Op)
		begun := func() bool { return volatile(target[:1]) != 0 }
		for limit := time.Now().Add(20 * time.Second); !begun(); runtime.Gosched() {
			require.True(t, time.Now().Before(limit), "nothing is written: %s", &log)
		}
		require.NoError(t, c.Process.Signal(syscall.SIGSTOP))
		err = ep.Deregister(exposed.Handle)
		partly := volatile(target[size-1:]) == 0
		snapshot := bytes.Clone(target)
		require.NoError(t, err)
		require.NoError(t, c.Process.Signal(syscall.SIGCONT))
		require.NoError(t, c.Wait(), "%s", &log)
		require.True(t, bytes.Equal(snapshot, target), "memory has changed after Deregister")
		ep.Close()
		if partly {
			return
		}
		require.Less(t, try, 10, "the writer is always faster")
	}
}

// volatile reads a byte that another process changes behind the compiler's back.
//
//go:noinline
func volatile(b []byte) byte { return b[0] }

// stalledWriter is the other process: it writes where it is told to.
func stalledWriter(t *testing.T, to string, size int) {
	p := opened(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ep, err := p.Dial(ctx, netip.AddrPort{}, netip.MustParseAddrPort(to))
	require.NoError(t, err)
	defer ep.Close()
	in, err := ep.Allocate(24)
	require.NoError(t, err)
	require.NoError(t, ep.PostRecv(provider.Recv{Buffer: in.Segment(0, 24)}))
	require.Equal(t, 24, next(t, ep).Len)
	data := bytes.Repeat([]byte{1}, size)
	w := provider.RDMA{Local: provider.Segment{Bytes: data}, Remote: provider.Descriptor(in.Bytes)}
	require.NoError(t, ep.PostWrite(w))
	c := next(t, ep) // of the write, which may be cut short
	fmt.Println(hex.EncodeToString(in.Bytes), c)
	require.Equal(t, provider.OpWrite, c.Op)
}
