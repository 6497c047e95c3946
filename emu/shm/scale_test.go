//go:build linux

package shm

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sansock/session"
)

// TestIdle measures idle connections between two processes. SANSOCK_IDLE=10000 makes it the real thing.
func TestIdle(t *testing.T) {
	n := 200
	if v := os.Getenv("SANSOCK_IDLE"); v != "" {
		n, _ = strconv.Atoi(v)
	}
	p := start(t, "echo", space(t))
	s := openSAN(t, Config{Space: space(t)})
	p.dial(t, s) // what is made once
	runtime.GC()
	files, here, there := openFiles(t), resident(t, os.Getpid()), resident(t, p.Process.Pid)
	began := time.Now()
	conns := make([]*session.Conn, n)
	for i := range conns {
		conns[i] = p.dial(t, s)
	}
	took := time.Since(began)
	runtime.GC()
	cpu := processorTime(t)
	time.Sleep(100 * time.Millisecond)
	cpu = processorTime(t) - cpu
	t.Logf("%d connections in %v; each: %d bytes resident here, %d there; CPU while idle %v in 100 ms", n, took,
		(resident(t, os.Getpid())-here)/n, (resident(t, p.Process.Pid)-there)/n, cpu)
	require.LessOrEqual(t, openFiles(t), files, "descriptors")
	buf := make([]byte, 8)
	for i, c := range conns {
		copy(buf, fmt.Sprint(i))
		_, err := c.Write(buf)
		require.NoError(t, err)
		_, err = io.ReadFull(c, buf)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(i), strings.TrimRight(string(buf), "\x00"))
		clear(buf)
		require.NoError(t, c.Close())
	}
}

// resident is the memory of a process, in bytes.
func resident(t testing.TB, pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	require.NoError(t, err)
	pages, err := strconv.Atoi(strings.Fields(string(b))[1])
	require.NoError(t, err)
	return pages * os.Getpagesize()
}

func processorTime(t testing.TB) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
