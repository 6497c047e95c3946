package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
	"go.uber.org/goleak"

	"sansock/examples/internal/pathtest"
	"sansock/sannet"
)

// TestMain: fasthttp has goroutines that sleep, and end only when they have slept enough, or never.
func TestMain(m *testing.M) {
	pathtest.Main(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*HostClient).connsCleaner"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*Client).mCleaner"))
}

func TestRun(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(&out))
	assert.Regexp(t, "^path: "+pathtest.Want()+"\nhello, 127.0.0.1: 1000 requests, .* each\n$", out.String())
}

// start serves, and returns a client, the address and the number of the client's connections.
func start(t *testing.T, srv *fasthttp.Server) (c *fasthttp.Client, addr string, dials *atomic.Int64) {
	l := pathtest.Listen(t)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	dials = new(atomic.Int64)
	c = newClient(func(c net.Conn) {
		dials.Add(1)
		pathtest.Check(t, c)
	})
	t.Cleanup(func() {
		c.CloseIdleConnections()
		assert.NoError(t, srv.Shutdown())
		assert.NoError(t, <-served)
	})
	return c, l.Addr().String(), dials
}

func TestBodies(t *testing.T) {
	c, addr, dials := start(t, &fasthttp.Server{Handler: handle, MaxRequestBodySize: 16 << 20})
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	for _, size := range []int{0, 1, 10_000, 1 << 20, 10 << 20} {
		sent := bytes.Repeat([]byte("x"), size)
		req.SetRequestURI("http://" + addr)
		req.Header.SetMethod("POST")
		req.SetBody(sent)
		require.NoError(t, c.Do(req, resp))
		assert.Equal(t, fasthttp.StatusOK, resp.StatusCode())
		assert.True(t, bytes.Equal(sent, resp.Body()))
	}
	assert.Equal(t, int64(1), dials.Load(), "kept alive")
}

// TestStream: a body is read while it is written.
func TestStream(t *testing.T) {
	c, addr, _ := start(t, &fasthttp.Server{Handler: func(ctx *fasthttp.RequestCtx) {
		ctx.SetBodyStreamWriter(func(w *bufio.Writer) {
			for i := range 100 {
				fmt.Fprintf(w, "line %d\n", i)
				w.Flush()
			}
		})
	}})
	c.StreamResponseBody = true
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	req.SetRequestURI("http://" + addr)
	require.NoError(t, c.Do(req, resp))
	got, err := io.ReadAll(resp.BodyStream())
	require.NoError(t, err)
	assert.Equal(t, 100, bytes.Count(got, []byte("\n")))
	require.NoError(t, resp.CloseBodyStream())
}

// TestLimits: fasthttp counts connections by the peer's address, which it takes from a *net.TCPAddr.
func TestLimits(t *testing.T) {
	release := make(chan struct{})
	_, addr, _ := start(t, &fasthttp.Server{MaxConnsPerIP: 2, Logger: log.New(io.Discard, "", 0), Handler: func(*fasthttp.RequestCtx) { <-release }})
	var conns []net.Conn
	for range 3 {
		c, err := sannet.Dial("tcp", addr)
		require.NoError(t, err)
		defer c.Close()
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		conns = append(conns, c)
	}
	answers := make(chan string, len(conns))
	for _, c := range conns {
		go func() {
			line, _ := bufio.NewReader(c).ReadString('\n')
			answers <- strings.TrimSpace(line)
		}()
	}
	assert.Equal(t, "HTTP/1.1 429 Too Many Requests", <-answers)
	close(release)
	assert.Equal(t, "HTTP/1.1 200 OK", <-answers)
	assert.Equal(t, "HTTP/1.1 200 OK", <-answers)
}

// TestTimeouts: of a client that does not send, and of a server that does not answer.
func TestTimeouts(t *testing.T) {
	release := make(chan struct{})
	c, addr, _ := start(t, &fasthttp.Server{ReadTimeout: 20 * time.Millisecond, Handler: func(*fasthttp.RequestCtx) { <-release }})
	defer close(release)
	idle, err := sannet.Dial("tcp", addr)
	require.NoError(t, err)
	defer idle.Close()
	io.WriteString(idle, "GET / HTTP/1.1\r\n")
	got, err := io.ReadAll(idle) // until the server hangs up
	assert.NoError(t, err)
	assert.Contains(t, string(got), "Connection: close")
	_, _, err = c.GetTimeout(nil, "http://"+addr, 20*time.Millisecond)
	assert.ErrorIs(t, err, fasthttp.ErrTimeout)
}

func TestMany(t *testing.T) {
	c, addr, _ := start(t, &fasthttp.Server{Handler: handle})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 100 {
				code, body, err := c.Get(nil, "http://"+addr)
				if !assert.NoError(t, err) {
					return
				}
				assert.Equal(t, fasthttp.StatusOK, code)
				assert.Equal(t, "hello, 127.0.0.1", string(body))
			}
		})
	}
	wg.Wait()
}
