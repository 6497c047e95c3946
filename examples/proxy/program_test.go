package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// process is the program while it runs.
type process struct {
	*exec.Cmd
	t      *testing.T
	stdout *bufio.Reader
	seen   strings.Builder // what was read of stdout
	errs   lines
}

// build builds the program once.
var build = sync.OnceValues(func() (exe string, err error) {
	exe = filepath.Join(dir, "proxy.exe")
	if out, err := exec.Command("go", "build", "-o", exe, ".").CombinedOutput(); err != nil {
		return "", errors.New(string(out))
	}
	return exe, nil
})

// program builds the program and returns a function that starts it, and waits until it listens, or ended.
func program(t *testing.T) func(args ...string) *process {
	exe, err := build()
	require.NoError(t, err)
	return func(args ...string) *process {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		t.Cleanup(cancel)
		p := &process{Cmd: exec.CommandContext(ctx, exe, args...), t: t}
		p.Stderr = &p.errs
		pipe, err := p.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, p.Start())
		p.stdout = bufio.NewReader(pipe)
		p.wait("forwarding ")
		return p
	}
}

// wait reads the output until a line begins with prefix.
func (p *process) wait(prefix string) {
	for {
		line, err := p.stdout.ReadString('\n')
		p.seen.WriteString(line)
		if err != nil || strings.HasPrefix(line, prefix) {
			return
		}
	}
}

// end waits for the program to end, and returns its exit code.
func (p *process) end() int {
	io.Copy(&p.seen, p.stdout)
	p.Wait()
	return p.ProcessState.ExitCode()
}

// startAcross is startChain with a process for each half, and the SAN in the middle.
func startAcross(t *testing.T, target string) *chain {
	start := program(t)
	c := &chain{addr: freeAddress(t)}
	middle := "san:" + freeAddress(t)
	far := start("-listen", middle, "-to", "tcp:"+target)
	near := start("-listen", "tcp:"+c.addr, "-to", middle)
	c.end = sync.OnceFunc(func() {
		for _, p := range []*process{near, far} {
			assert.NoError(t, p.Process.Signal(syscall.SIGTERM))
			assert.Zero(t, p.end())
			io.WriteString(&c.out, p.seen.String())
			io.WriteString(&c.errs, p.errs.String())
		}
	})
	t.Cleanup(c.end)
	return c
}

// TestTwoProcesses: one proxy beside the client and one beside the server, of which the latter is killed in the end.
func TestTwoProcesses(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no SAN between processes")
	}
	start := program(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	c := &chain{addr: freeAddress(t)}
	middle := "san:" + freeAddress(t)
	far := start("-listen", middle, "-to", "tcp:"+l.Addr().String())
	near := start("-listen", "tcp:"+c.addr, "-to", middle)

	sent := pattern(2 << 20)
	client, target := c.connect(t, l)
	go func() {
		client.Write(sent)
		client.CloseWrite()
	}()
	got, err := io.ReadAll(target)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(sent, got))
	target.Close()
	_, err = client.Read(make([]byte, 1))
	assert.Equal(t, io.EOF, err)
	client.Close()

	client, target = c.connect(t, l)
	io.WriteString(target, "x") // read at the client, all are connected
	_, err = io.ReadFull(client, make([]byte, 1))
	require.NoError(t, err)
	target.SetLinger(0)
	target.Close()
	_, err = client.Read(make([]byte, 1))
	assert.ErrorIs(t, err, syscall.ECONNRESET)

	client, _ = c.connect(t, l)
	require.NoError(t, far.Process.Kill())
	_, err = client.Read(make([]byte, 1))
	assert.Equal(t, io.EOF, err, "the end of a process looks as over TCP")
	client.Close()
	assert.Equal(t, -1, far.end())
	assert.Empty(t, far.errs.String())

	require.NoError(t, near.Process.Signal(os.Interrupt))
	assert.Zero(t, near.end())
	assert.Empty(t, near.errs.String())
	assert.Contains(t, near.seen.String(), "over san via emu")
	assert.Contains(t, near.seen.String(), " 2097152 bytes to ")
}

// TestDrain: after SIGTERM a connection that is there lives on, and no other comes.
func TestDrain(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals")
	}
	start := program(t)
	begin := func(drain string) (p *process, client, target *net.TCPConn) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { l.Close() })
		c := &chain{addr: freeAddress(t)}
		middle := "san:" + freeAddress(t)
		p = start("-drain", drain, "-listen", "tcp:"+c.addr, "-to", middle, "-listen", middle, "-to", "tcp:"+l.Addr().String())
		client, target = c.connect(t, l)
		require.NoError(t, p.Process.Signal(syscall.SIGTERM))
		p.wait("draining 2 connections for " + drain + " at most\n")
		_, err = net.Dial("tcp", c.addr)
		assert.ErrorIs(t, err, syscall.ECONNREFUSED)
		return p, client, target
	}
	t.Run("finishes", func(t *testing.T) {
		p, client, target := begin("1h0m0s")
		for range 3 {
			io.WriteString(client, "still")
			b := make([]byte, 5)
			_, err := io.ReadFull(target, b)
			require.NoError(t, err)
			assert.Equal(t, "still", string(b))
		}
		client.Close()
		target.Close()
		assert.Zero(t, p.end())
		assert.Contains(t, p.seen.String(), "over san via emu\n")
		assert.True(t, strings.HasSuffix(p.seen.String(), "forwarded 2 connections\n"), p.seen.String())
		assert.Empty(t, p.errs.String())
	})
	t.Run("is cut", func(t *testing.T) {
		p, client, target := begin("10ms")
		for _, conn := range []net.Conn{client, target} {
			_, err := conn.Read(make([]byte, 1))
			assert.ErrorIs(t, err, syscall.ECONNRESET)
		}
		assert.Zero(t, p.end())
		assert.Equal(t, "proxy: aborting 2 connections that did not finish in 10ms\n", p.errs.String())
	})
	t.Run("second signal", func(t *testing.T) {
		p, _, _ := begin("1h0m0s")
		require.NoError(t, p.Process.Signal(syscall.SIGTERM))
		assert.Equal(t, -1, p.end(), "ended by the signal")
	})
}

func TestFailures(t *testing.T) {
	start := program(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	p := start("-listen", "san:127.0.0.1:0", "-listen", "tcp:"+l.Addr().String(), "-to", "tcp:x:1", "-to", "tcp:x:1")
	assert.Equal(t, 1, p.end())
	assert.Contains(t, p.errs.String(), "address already in use")
	p = start("-listen", "nonsense")
	assert.Equal(t, 2, p.end())
	assert.Contains(t, p.errs.String(), "must be tcp:HOST:PORT, san:HOST:PORT or auto:HOST:PORT (-help shows the flags)\n")
}

// TestCurl: a web page by way of the SAN.
func TestCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("curl is not installed")
	}
	page := pattern(1 << 20)
	overEach(t, func(t *testing.T, c *chain, l net.Listener) {
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == "POST" {
				b, _ := io.ReadAll(r.Body)
				w.Write(b)
				return
			}
			w.Write(page)
		})}
		go srv.Serve(l)
		defer srv.Close()
		do := func(args ...string) []byte {
			args = append([]string{"--noproxy", "*", "-sS", "--max-time", "30"}, args...)
			out, err := exec.Command(curl, append(args, "http://"+c.addr+"/")...).Output()
			require.NoError(t, err)
			return out
		}
		assert.True(t, bytes.Equal(page, do()))
		file := filepath.Join(t.TempDir(), "page")
		require.NoError(t, os.WriteFile(file, page[:100_000], 0o600))
		assert.True(t, bytes.Equal(page[:100_000], do("--data-binary", "@"+file)))
	})
}

// TestRedis: a stock server and a stock client.
func TestRedis(t *testing.T) {
	for _, tool := range []string{"redis-server", "redis-cli", "redis-benchmark"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(tool + " is not installed")
		}
	}
	addr := freeAddress(t)
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	server := exec.CommandContext(ctx, "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir())
	var log lines
	server.Stdout = &log
	require.NoError(t, server.Start())
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "Ready to accept") }, limit, time.Millisecond)
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			c := start(t, kind, addr)
			_, port, err := net.SplitHostPort(c.addr)
			require.NoError(t, err)
			redis := func(tool, stdin string, args ...string) string {
				cmd := exec.CommandContext(ctx, tool, append([]string{"-h", "127.0.0.1", "-p", port}, args...)...)
				cmd.Stdin = strings.NewReader(stdin)
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, string(out))
				return string(out)
			}
			assert.Equal(t, "PONG\n", redis("redis-cli", "", "ping"))
			large := strings.Repeat("0123456789abcdef", 1<<16)
			assert.Equal(t, "OK\n", redis("redis-cli", large, "-x", "set", "large"))
			assert.Equal(t, large+"\n", redis("redis-cli", "", "get", "large"))
			var protocol strings.Builder
			for i := range 1000 {
				fmt.Fprintf(&protocol, "RPUSH list %d\r\n", i)
			}
			assert.Contains(t, redis("redis-cli", protocol.String(), "--pipe"), "errors: 0, replies: 1000")
			assert.Equal(t, "1000\n", redis("redis-cli", "", "llen", "list"))
			assert.Equal(t, "OK\n", redis("redis-cli", "", "flushall"))
			out := redis("redis-benchmark", "", "-q", "-n", "2000", "-c", "20", "-P", "8", "-t", "set,get,lpush,mset")
			assert.Contains(t, out, "requests per second")
			c.end()
			assert.Empty(t, c.errs.String())
			want := "over san via emu\n"
			if kind == "tcp" {
				want = "over tcp: plain\n"
			}
			assert.Contains(t, c.out.String(), want)
		})
	}
	require.NoError(t, server.Process.Signal(syscall.SIGTERM))
	assert.NoError(t, server.Wait(), log.String())
}
