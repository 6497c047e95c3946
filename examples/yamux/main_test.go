package main

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/examples/internal/pathtest"
	"sansock/sannet"
)

func TestMain(m *testing.M) { pathtest.Main(m) }

func TestRun(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(&out))
	assert.Regexp(t, "^path: "+pathtest.Want()+"\n20 streams: 1048576 bytes each, there and back in .*\n$", out.String())
}

// conns returns both ends of a connection.
func conns(t *testing.T) (client, server net.Conn) {
	l := pathtest.Listen(t)
	client, err := sannet.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	pathtest.Check(t, client)
	t.Cleanup(func() { client.Close() })
	server, err = l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() })
	return client, server
}

// sessions returns both ends of a session, of which the server's echoes.
func sessions(t *testing.T, config *yamux.Config) (client, server *yamux.Session) {
	cc, sc := conns(t)
	client, err := yamux.Client(cc, config)
	require.NoError(t, err)
	server, err = yamux.Server(sc, config)
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() { echo(server) })
	t.Cleanup(func() {
		client.Close()
		server.Close()
		wg.Wait()
	})
	return client, server
}

// TestManyStreams: hundreds at a time, and the end of input of one is no end of others.
func TestManyStreams(t *testing.T) {
	client, _ := sessions(t, config())
	var wg sync.WaitGroup
	for range 300 {
		wg.Go(func() {
			for _, size := range []int{1, 1000, 50_000} {
				assert.NoError(t, exchange(client, make([]byte, size)))
			}
		})
	}
	wg.Wait()
	_, err := client.Ping()
	assert.NoError(t, err)
}

// TestSlowStream: a stream that nobody reads does not stop others.
func TestSlowStream(t *testing.T) {
	client, _ := sessions(t, config())
	slow, err := client.OpenStream()
	require.NoError(t, err)
	slow.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
	_, err = slow.Write(make([]byte, 16<<20)) // whose echo is not read
	assert.ErrorIs(t, err, yamux.ErrTimeout)
	assert.NoError(t, exchange(client, make([]byte, 1<<20)))
	slow.Close()
}

// TestLost: when the connection breaks, streams end.
func TestLost(t *testing.T) {
	cc, sc := conns(t)
	client, err := yamux.Client(cc, config())
	require.NoError(t, err)
	st, err := client.OpenStream()
	require.NoError(t, err)
	sc.Close()
	st.SetDeadline(time.Now().Add(30 * time.Second))
	_, err = st.Read(make([]byte, 1))
	assert.Error(t, err)
	assert.NotErrorIs(t, err, yamux.ErrTimeout)
	<-client.CloseChan()
	_, err = client.OpenStream()
	assert.ErrorIs(t, err, yamux.ErrSessionShutdown)
}

// TestKeepalive: a peer that does not answer is given up.
func TestKeepalive(t *testing.T) {
	cc, sc := conns(t)
	go io.Copy(io.Discard, sc) // it reads, and says nothing
	c := config()
	c.KeepAliveInterval, c.ConnectionWriteTimeout = 20*time.Millisecond, 20*time.Millisecond
	client, err := yamux.Client(cc, c)
	require.NoError(t, err)
	<-client.CloseChan()
	assert.True(t, client.IsClosed())
}
