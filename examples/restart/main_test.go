//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/sannet"
)

var exe string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "restart")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		exe = filepath.Join(dir, "restart")
		if out, err := exec.Command("go", "build", "-o", exe, ".").CombinedOutput(); err != nil {
			panic(string(out))
		}
		return m.Run()
	}())
}

// limit is how long anything may take.
const limit = time.Minute

// The program is replaced twice under the load of clients that keep their connections, over the SAN and over TCP, and of some
// that do not: every request is answered, by the process of its time, and no connection is made anew.
func TestRestart(t *testing.T) {
	for _, providers := range []string{"emu", "none"} {
		t.Run(providers, func(t *testing.T) { testRestart(t, providers) })
	}
}

func testRestart(t *testing.T, providers string) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), "SANNET_PROVIDERS="+providers)
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	started := func() (pid int, addr string) {
		t.Helper()
		require.True(t, lines.Scan(), "the program says where it listens")
		_, err := fmt.Sscanf(lines.Text(), "process %d listens on %s", &pid, &addr)
		require.NoError(t, err, lines.Text())
		return pid, addr
	}
	pid, addr := started()
	require.Equal(t, cmd.Process.Pid, pid)

	const keeping, churning = 6, 2
	var (
		wg       sync.WaitGroup
		stop     = make(chan struct{})
		dials    atomic.Int64
		requests atomic.Int64
		last     [keeping]atomic.Int64 // the process that has answered
		sanPaths atomic.Int64
	)
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := sannet.DialContext(ctx, network, address)
		if err == nil {
			if _, ok := c.(*sannet.Conn); ok {
				sanPaths.Add(1)
			}
		}
		return c, err
	}
	client := func(worker int, keep bool, body []byte) {
		defer wg.Done()
		tr := &http.Transport{DisableKeepAlives: !keep, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if keep {
				dials.Add(1)
			}
			return dial(ctx, network, address)
		}}
		defer tr.CloseIdleConnections()
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			p := body[:rand.IntN(len(body))]
			url := "http://" + addr + "/"
			if n%50 == 0 {
				url += "?wait=30ms" // is being served while the process is replaced, by and by
			}
			// A POST, which the client does not repeat by itself.
			req, _ := http.NewRequestWithContext(ctx, "POST", url, bytes.NewReader(p))
			req.GetBody = nil
			resp, err := tr.RoundTrip(req)
			if !assert.NoError(t, err, "request %d of client %d", n, worker) {
				return
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if !assert.NoError(t, err) || !assert.True(t, bytes.Equal(p, got)) {
				return
			}
			requests.Add(1)
			if keep {
				by, _ := strconv.Atoi(resp.Header.Get("Process"))
				last[worker].Store(int64(by))
			}
		}
	}
	for i := range keeping {
		wg.Add(1)
		go client(i, true, bytes.Repeat([]byte{byte('a' + i)}, 1<<(10+2*i)))
	}
	for i := range churning {
		wg.Add(1)
		go client(i, false, []byte("short"))
	}
	// everybody waits until each of the clients that keep their connection is answered by the process.
	everybody := func(pid int) {
		t.Helper()
		deadline := time.Now().Add(limit)
		for i := range last {
			for last[i].Load() != int64(pid) {
				if !time.Now().Before(deadline) || t.Failed() {
					t.Fatalf("client %d is not answered by process %d", i, pid)
				}
				time.Sleep(time.Millisecond)
			}
		}
	}
	everybody(pid)
	for range 2 {
		require.NoError(t, syscall.Kill(pid, syscall.SIGHUP))
		next, where := started()
		require.NotEqual(t, pid, next)
		require.Equal(t, addr, where)
		everybody(next)
		gone(t, pid)
		pid = next
	}
	close(stop)
	wg.Wait()
	assert.EqualValues(t, keeping, dials.Load(), "connections were made once")
	if providers == "emu" {
		assert.GreaterOrEqual(t, sanPaths.Load(), int64(keeping))
	}
	require.NoError(t, syscall.Kill(pid, syscall.SIGTERM))
	gone(t, pid)
	assert.NoError(t, cmd.Wait(), "the first process")
	assert.Empty(t, stderr.String())
	t.Logf("%d requests", requests.Load())
}

// gone waits until a process has ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if _, rest, ok := strings.Cut(string(b), ") "); err != nil || ok && rest[0] == 'Z' {
			return
		}
		require.True(t, time.Now().Before(deadline), "process %d does not end", pid)
		time.Sleep(time.Millisecond)
	}
}
