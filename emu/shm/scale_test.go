//go:build linux

package shm

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/session"
)

// TestIdle measures idle connections between two processes. SANSOCK_IDLE=10000 makes it the real
// thing.
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
	here, there = (resident(t, os.Getpid())-here)/n, (resident(t, p.Process.Pid)-there)/n
	t.Logf("%d connections in %v; each: %d bytes resident here, %d there; CPU while idle %v in 100 ms", n, took, here, there, cpu)
	if !raced {
		require.LessOrEqual(t, here+there, 64<<10, "both ends of a connection, shared memory counted twice")
	}
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

// TestFair has many connections at work at the same time. None is left behind: each makes its round
// trips before any has made fifty times as many.
func TestFair(t *testing.T) {
	n, trips := 1000, 20
	if raced || testing.Short() {
		n = 100
	}
	p := start(t, "echo", space(t))
	s := openSAN(t, Config{Space: space(t)})
	conns := make([]*session.Conn, n)
	for i := range conns {
		conns[i] = p.dial(t, s)
	}
	var there atomic.Int32 // connections that have made their round trips
	var unfair atomic.Bool
	most := make([]int, n)
	var wg sync.WaitGroup
	began := time.Now()
	all := make(chan struct{}) // all of them are there
	for i, c := range conns {
		wg.Go(func() {
			<-all
			b := []byte{byte(i), byte(i >> 8), 0, 0}
			got := make([]byte, len(b))
			for trip := 1; int(there.Load()) < n && !unfair.Load(); trip++ {
				b[2], b[3] = byte(trip), byte(trip>>8)
				_, err := c.Write(b)
				if err == nil {
					_, err = io.ReadFull(c, got)
				}
				if !assert.NoError(t, err) || !assert.Equal(t, b, got) {
					unfair.Store(true)
					return
				}
				most[i] = trip
				switch trip {
				case trips:
					there.Add(1)
				case 50 * trips:
					unfair.Store(true)
				}
			}
		})
	}
	close(all)
	wg.Wait()
	total := 0
	for _, m := range most {
		total += m
	}
	slices.Sort(most)
	t.Logf("%d connections, %d round trips in %v; by connection: %d to %d, the middle one %d", n, total, time.Since(began),
		most[0], most[n-1], most[n/2])
	require.False(t, unfair.Load(), "%d connections are left behind", n-int(there.Load()))
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
