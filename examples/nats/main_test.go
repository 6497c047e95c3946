package main

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/examples/internal/pathtest"
)

func TestMain(m *testing.M) { pathtest.Main(m) }

const limit = 30 * time.Second

func TestRun(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(&out))
	path := "path: " + pathtest.Want() + "\n"
	assert.Regexp(t, "^"+path+path+"greet: hello, NATS, 1000 times, .* each\n$", out.String())
}

// start serves on l until the end of the test, or until stop is called.
func start(t *testing.T, l net.Listener) (stop func()) {
	srv, err := newServer()
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- serve(l, srv) }()
	return func() {
		l.Close()
		srv.Shutdown()
		srv.WaitForShutdown()
		assert.NoError(t, <-served)
	}
}

// client connects, and has its connections sent to conns, if that is not nil.
func client(t *testing.T, l net.Listener, conns chan<- net.Conn, more ...nats.Option) *nats.Conn {
	c, err := connect(l.Addr().String(), func(c net.Conn) {
		pathtest.Check(t, c)
		if conns != nil {
			conns <- c
		}
	}, more...)
	require.NoError(t, err)
	return c
}

func TestMessages(t *testing.T) {
	l := pathtest.Listen(t)
	defer start(t, l)()
	from, to := client(t, l, nil), client(t, l, nil)
	defer from.Close()
	defer to.Close()
	sub, err := to.SubscribeSync("subject.*")
	require.NoError(t, err)
	require.NoError(t, to.Flush())
	for _, size := range []int{0, 1, 100, 10_000, 1 << 20} {
		sent := bytes.Repeat([]byte("x"), size)
		require.NoError(t, from.Publish("subject.size", sent))
		m, err := sub.NextMsg(limit)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(sent, m.Data))
	}
	// Small ones that the client gathers.
	const n = 20_000
	for range n {
		require.NoError(t, from.Publish("subject.many", []byte("0123456789")))
	}
	require.NoError(t, from.Flush())
	for range n {
		m, err := sub.NextMsg(limit)
		require.NoError(t, err)
		require.Equal(t, "subject.many", m.Subject)
	}
	_, err = from.Request("nobody", nil, limit)
	assert.ErrorIs(t, err, nats.ErrNoResponders)
}

// TestReconnect: a client whose connection breaks comes back, with its subscriptions.
func TestReconnect(t *testing.T) {
	l := pathtest.Listen(t)
	defer start(t, l)()
	conns := make(chan net.Conn, 10)
	back := make(chan struct{}, 10)
	c := client(t, l, conns, nats.ReconnectWait(time.Millisecond), nats.ReconnectHandler(func(*nats.Conn) { back <- struct{}{} }))
	defer c.Close()
	sub, err := c.SubscribeSync("news")
	require.NoError(t, err)
	require.NoError(t, c.Flush())
	for range 3 {
		raw := <-conns
		raw.(interface{ SetLinger(int) error }).SetLinger(0)
		raw.Close()
		<-back
		require.NoError(t, c.Publish("news", []byte("extra")))
		m, err := sub.NextMsg(limit)
		require.NoError(t, err)
		assert.Equal(t, "extra", string(m.Data))
	}
}

// TestPing: the client looks whether the server is there, and notices when it is not.
func TestPing(t *testing.T) {
	l := pathtest.Listen(t)
	stop := start(t, l)
	closed := make(chan struct{})
	c := client(t, l, nil, nats.PingInterval(10*time.Millisecond), nats.NoReconnect(),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	for range 3 {
		_, err := c.RTT()
		require.NoError(t, err)
	}
	stop()
	<-closed
	assert.True(t, c.IsClosed())
}
