package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// limit is how long a step may take before the test counts as hanging. Nothing waits for it otherwise.
const limit = 30 * time.Second

// dir is where the program is built.
var dir string

func TestMain(m *testing.M) {
	os.Setenv("SANNET_PROVIDERS", "emu")
	var err error
	if dir, err = os.MkdirTemp("", "proxy"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// lines is output that is written by one goroutine and looked at by another.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// freeAddress is one that nothing listens on, most probably.
func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// chain is a proxy that takes TCP and goes to target by way of kind.
type chain struct {
	addr      string
	out, errs lines
	end       func() // ends the proxy and waits for it
}

// startChain runs client -> tcp -> kind -> tcp -> target in this process.
func startChain(t *testing.T, kind, target string, more ...string) *chain {
	addr := freeAddress(t)
	middle := kind + ":" + freeAddress(t)
	o, err := parse(append(more, "-listen", "tcp:"+addr, "-to", middle, "-listen", middle, "-to", "tcp:"+target), io.Discard)
	require.NoError(t, err)
	return startOptions(t, addr, o)
}

// startOptions runs a proxy in this process, which listens on addr.
func startOptions(t *testing.T, addr string, o options) *chain {
	c := &chain{addr: addr}
	ctx, stop := context.WithCancel(context.Background())
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, o, io.MultiWriter(&c.out, once(w)), &c.errs) }()
	io.Copy(io.Discard, r) // until the first output: it listens
	c.end = sync.OnceFunc(func() {
		stop()
		select {
		case err := <-ended:
			assert.NoError(t, err)
		case <-time.After(limit):
			t.Error("the proxy does not end")
		}
	})
	t.Cleanup(c.end)
	return c
}

// once returns a writer that closes w when it is written to.
func once(w *io.PipeWriter) io.Writer {
	return writerFunc(func(b []byte) (int, error) {
		w.Close()
		return len(b), nil
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// turnedAway dials the chain and requires that the connection is reset, during the dial already or soon after.
func (c *chain) turnedAway(t *testing.T) {
	conn, err := net.Dial("tcp", c.addr)
	if err == nil {
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(limit))
		_, err = conn.Read(make([]byte, 1))
	}
	assert.ErrorIs(t, err, syscall.ECONNRESET)
}

// connect dials the chain and returns both ends, the target's from l.
func (c *chain) connect(t *testing.T, l net.Listener) (client, target *net.TCPConn) {
	cc, err := net.Dial("tcp", c.addr)
	require.NoError(t, err)
	tc, err := l.Accept()
	require.NoError(t, err)
	for _, conn := range []net.Conn{cc, tc} {
		conn.SetDeadline(time.Now().Add(limit))
		t.Cleanup(func() { conn.Close() })
	}
	return cc.(*net.TCPConn), tc.(*net.TCPConn)
}

// kinds are the ways from the client's TCP to the target's: in one process over san, auto or tcp, and in two over the SAN.
func kinds() []string {
	if runtime.GOOS != "linux" {
		return []string{"san", "auto", "tcp"}
	}
	return []string{"san", "auto", "tcp", "across"}
}

func start(t *testing.T, kind, target string) *chain {
	if kind == "across" {
		return startAcross(t, target)
	}
	return startChain(t, kind, target)
}

// overEach runs f over a chain of each kind, with a target that listens on l.
func overEach(t *testing.T, f func(t *testing.T, c *chain, l net.Listener)) {
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			t.Cleanup(func() { l.Close() })
			c := start(t, kind, l.Addr().String())
			f(t, c, l)
			c.end()
			assert.Empty(t, c.errs.String())
			if kind == "tcp" {
				assert.NotContains(t, c.out.String(), "over san")
			} else {
				assert.Contains(t, c.out.String(), "over tcp: plain, to 127.0.0.1:")
				assert.Contains(t, c.out.String(), "over san via emu\n")
			}
		})
	}
}
