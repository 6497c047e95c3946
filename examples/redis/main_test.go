package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/examples/internal/pathtest"
	"sansock/sannet"
)

func TestMain(m *testing.M) { pathtest.Main(m) }

func TestRun(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(&out))
	assert.Regexp(t, "^path: "+pathtest.Want()+"\ngreeting: hello\ncount: 1000, .* each\n$", out.String())
}

// serve serves on l, and keeps the server's ends of the connections.
func serve(t *testing.T, l net.Listener) *keeper {
	k := &keeper{Listener: l}
	served := make(chan error, 1)
	go func() { served <- newStore().serve(k) }()
	t.Cleanup(func() {
		l.Close()
		assert.NoError(t, <-served)
		k.closeAll()
	})
	return k
}

type keeper struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (k *keeper) Accept() (net.Conn, error) {
	c, err := k.Listener.Accept()
	if err == nil {
		k.mu.Lock()
		k.conns = append(k.conns, c)
		k.mu.Unlock()
	}
	return c, err
}

func (k *keeper) closeAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.conns {
		c.Close()
	}
	k.conns = nil
}

// client returns a client and the number of its connections.
func newClient(t *testing.T, addr string, o redis.Options) (*redis.Client, *atomic.Int64) {
	var dials atomic.Int64
	o.Addr = addr
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := sannet.DialContext(ctx, network, addr)
		if err == nil {
			dials.Add(1)
			pathtest.Check(t, c)
		}
		return c, err
	}
	c := redis.NewClient(&o)
	t.Cleanup(func() { c.Close() })
	return c, &dials
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestCommands(t *testing.T) {
	l := pathtest.Listen(t)
	serve(t, l)
	c, _ := newClient(t, l.Addr().String(), redis.Options{})
	ctx := within(t)
	for _, size := range []int{0, 1, 100, 10_000, 1 << 20, 10 << 20} {
		value := bytes.Repeat([]byte("v"), size)
		require.NoError(t, c.Set(ctx, "key", value, 0).Err())
		got, err := c.Get(ctx, "key").Bytes()
		require.NoError(t, err)
		assert.True(t, bytes.Equal(value, got))
	}
	assert.Equal(t, redis.Nil, c.Get(ctx, "nosuch").Err())
	assert.EqualError(t, c.Do(ctx, "nosuch").Err(), "ERR unknown command 'nosuch'")
	commands, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for range 10_000 {
			p.Incr(ctx, "count")
		}
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, int64(10_000), commands[9999].(*redis.IntCmd).Val())
}

// TestPool: many at a time, each on a connection of its own.
func TestPool(t *testing.T) {
	l := pathtest.Listen(t)
	serve(t, l)
	c, dials := newClient(t, l.Addr().String(), redis.Options{PoolSize: 20})
	ctx := within(t)
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			for range 50 {
				assert.NoError(t, c.Incr(ctx, "count").Err())
			}
		})
	}
	wg.Wait()
	n, err := c.Get(ctx, "count").Int()
	require.NoError(t, err)
	assert.Equal(t, 2000, n)
	assert.LessOrEqual(t, dials.Load(), int64(20))
}

func TestPubSub(t *testing.T) {
	l := pathtest.Listen(t)
	serve(t, l)
	c, _ := newClient(t, l.Addr().String(), redis.Options{})
	ctx := within(t)
	sub := c.Subscribe(ctx, "news")
	defer sub.Close()
	_, err := sub.Receive(ctx)
	require.NoError(t, err)
	for range 100 {
		n, err := c.Publish(ctx, "news", "extra, extra").Result()
		require.NoError(t, err)
		assert.Equal(t, int64(1), n)
		m, err := sub.ReceiveMessage(ctx)
		require.NoError(t, err)
		assert.Equal(t, "extra, extra", m.Payload)
	}
}

// TestTimeout: a server that does not answer.
func TestTimeout(t *testing.T) {
	l := pathtest.Listen(t)
	accepted := make(chan net.Conn, 10)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- c
		}
	}()
	c, _ := newClient(t, l.Addr().String(), redis.Options{ReadTimeout: 20 * time.Millisecond, MaxRetries: -1})
	err := c.Ping(within(t)).Err()
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	l.Close()
	for c := range accepted {
		c.Close()
	}
}

// TestRestart: the client gets over the end of its idle connections. Over TCP it looks at each before it uses it; on
// the SAN there is nothing to look at, and it tries again.
func TestRestart(t *testing.T) {
	l := pathtest.Listen(t)
	k := serve(t, l)
	c, dials := newClient(t, l.Addr().String(), redis.Options{MinRetryBackoff: -1, MaxRetryBackoff: -1})
	ctx := within(t)
	for i := range 5 {
		require.NoError(t, c.Incr(ctx, "count").Err())
		assert.Equal(t, int64(i+1), dials.Load())
		k.closeAll()
	}
	n, err := c.Get(ctx, "count").Int()
	require.NoError(t, err)
	assert.Equal(t, 5, n)
}
