package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/examples/internal/pathtest"
)

func TestMain(m *testing.M) { pathtest.Main(m) }

func TestRun(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(&out))
	assert.Regexp(t, "^path: "+pathtest.Want()+"\necho: 1000 messages, .* each\n$", out.String())
}

// start serves with a handler, and connects. Raw is the client's connection below.
func start(t *testing.T, handler http.HandlerFunc) (ctx context.Context, c *websocket.Conn, raw net.Conn) {
	l := pathtest.Listen(t)
	srv := &http.Server{Handler: handler}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	c, err := dial(ctx, l.Addr().String(), func(c net.Conn) {
		pathtest.Check(t, c)
		raw = c
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		c.CloseNow()
		srv.Close()
		<-served
		cancel()
	})
	return ctx, c, raw
}

func TestMessages(t *testing.T) {
	ctx, c, _ := start(t, echo)
	for _, size := range []int{0, 1, 125, 126, 65535, 65536, 1 << 20, maxMessage} {
		sent := bytes.Repeat([]byte{byte(size)}, size)
		done := make(chan error, 1)
		go func() { done <- c.Write(ctx, websocket.MessageBinary, sent) }()
		kind, got, err := c.Read(ctx)
		require.NoError(t, err)
		require.NoError(t, <-done)
		assert.Equal(t, websocket.MessageBinary, kind)
		assert.True(t, bytes.Equal(sent, got))
	}
	assert.NoError(t, c.Close(websocket.StatusNormalClosure, ""))
}

// TestPing: pings are answered while messages are read.
func TestPing(t *testing.T) {
	ctx, c, _ := start(t, echo)
	done := c.CloseRead(ctx)
	for range 10 {
		require.NoError(t, c.Ping(ctx))
	}
	c.CloseNow()
	<-done.Done()
}

// TestTimeout: a read whose context ends breaks the connection, as the package has it.
func TestTimeout(t *testing.T) {
	gone := make(chan error, 1)
	_, c, _ := start(t, func(w http.ResponseWriter, r *http.Request) {
		sc, err := websocket.Accept(w, r, nil)
		if err == nil {
			_, _, err = sc.Read(r.Context())
			sc.CloseNow()
		}
		gone <- err
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, _, err := c.Read(ctx)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorIs(t, <-gone, io.EOF)
}

// TestCloseCodes: why either end closed.
func TestCloseCodes(t *testing.T) {
	ctx, c, _ := start(t, func(w http.ResponseWriter, r *http.Request) {
		sc, err := websocket.Accept(w, r, nil)
		if err == nil {
			sc.Close(websocket.StatusPolicyViolation, "not today")
		}
	})
	_, _, err := c.Read(ctx)
	assert.Equal(t, websocket.StatusPolicyViolation, websocket.CloseStatus(err))
	assert.ErrorContains(t, err, "not today")

	ctx, c, raw := start(t, func(w http.ResponseWriter, r *http.Request) {
		sc, err := websocket.Accept(w, r, nil)
		if err == nil {
			sc.CloseNow()
		}
	})
	_, _, err = c.Read(ctx)
	assert.ErrorIs(t, err, io.EOF)
	raw.Close()
}
