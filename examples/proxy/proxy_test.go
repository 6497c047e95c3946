package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pattern returns n bytes that differ from place to place.
func pattern(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{}).Read(b)
	return b
}

// TestHalfClose: the end of the question passes while the answer is still to come, and the other way round.
func TestHalfClose(t *testing.T) {
	overEach(t, func(t *testing.T, c *chain, l net.Listener) {
		question, answer := pattern(3<<20), pattern(5<<20)
		client, target := c.connect(t, l)
		for _, dir := range []struct{ from, to *net.TCPConn }{{client, target}, {target, client}} {
			sent := make(chan error, 1)
			data := question
			if dir.from == target {
				data = answer
			}
			go func() {
				_, err := dir.from.Write(data)
				sent <- errors.Join(err, dir.from.CloseWrite())
			}()
			got, err := io.ReadAll(dir.to)
			require.NoError(t, err)
			require.NoError(t, <-sent)
			assert.True(t, bytes.Equal(data, got))
		}
		client.Close()
		target.Close()
		c.end()
		assert.Contains(t, c.out.String(), ": 3145728 bytes to ")
		assert.Contains(t, c.out.String(), ", 5242880 back, ")
		assert.Equal(t, 2, strings.Count(c.out.String(), ", closed\n"), c.out.String())
	})
}

// TestTargetSpeaksFirst: nothing waits for the client to say something.
func TestTargetSpeaksFirst(t *testing.T) {
	overEach(t, func(t *testing.T, c *chain, l net.Listener) {
		client, target := c.connect(t, l)
		target.Write([]byte("220 ready\r\n"))
		b := make([]byte, 11)
		_, err := io.ReadFull(client, b)
		require.NoError(t, err)
		assert.Equal(t, "220 ready\r\n", string(b))
		target.Close()
		_, err = client.Read(b)
		assert.Equal(t, io.EOF, err)
		client.Close()
	})
}

// TestReset: what one end does to the other is the same through the proxy.
func TestReset(t *testing.T) {
	overEach(t, func(t *testing.T, c *chain, l net.Listener) {
		for _, byClient := range []bool{true, false} {
			a, b := c.connect(t, l)
			if !byClient {
				a, b = b, a
			}
			a.Write([]byte("x"))
			one := make([]byte, 1)
			_, err := io.ReadFull(b, one)
			require.NoError(t, err)
			a.SetLinger(0)
			a.Close()
			_, err = b.Read(one)
			assert.ErrorIs(t, err, syscall.ECONNRESET)
			b.Close()
		}
		c.end()
		assert.Equal(t, 2, strings.Count(c.out.String(), "aborted by the client: "), c.out.String())
		assert.Equal(t, 2, strings.Count(c.out.String(), "aborted by the target: "), c.out.String())
		assert.Contains(t, c.out.String(), "connection reset by peer")
	})
}

// TestEarlyAnswer: a target that answers and closes before it has read everything has its answer delivered.
func TestEarlyAnswer(t *testing.T) {
	overEach(t, func(t *testing.T, c *chain, l net.Listener) {
		client, target := c.connect(t, l)
		target.Write([]byte("no, thanks"))
		target.Close()
		got, err := io.ReadAll(client)
		require.NoError(t, err)
		assert.Equal(t, "no, thanks", string(got))
		for range 1 << 10 {
			if _, err = client.Write(make([]byte, 1<<16)); err != nil {
				break
			}
		}
		assert.Error(t, err)
	})
}

// TestNoTarget: a client whose target is not there is reset, and the reason is told.
func TestNoTarget(t *testing.T) {
	c := startChain(t, "san", freeAddress(t))
	c.turnedAway(t)
	c.end()
	assert.Regexp(t, `^proxy: \d+: 127.0.0.1:\d+ to tcp:127.0.0.1:\d+: dial tcp 127.0.0.1:\d+: connect: connection refused\n$`,
		c.errs.String())
}

// TestNoSAN: where only the SAN will do, there is no detour over TCP.
func TestNoSAN(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	addr := freeAddress(t)
	o, err := parse([]string{"-listen", "tcp:" + addr, "-to", "san:" + l.Addr().String()}, io.Discard)
	require.NoError(t, err)
	c := startOptions(t, addr, o)
	c.turnedAway(t)
	c.end()
	assert.Contains(t, c.errs.String(), "dial san "+l.Addr().String())
}

func TestBadFlags(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-nosuch", "flag provided but not defined: -nosuch"},
		{"", "-listen and -to are needed"},
		{"-listen tcp:x:1", "1 times -listen, but 0 times -to"},
		{"-listen x:1 -to tcp:x:1", "must be tcp:HOST:PORT, san:HOST:PORT or auto:HOST:PORT"},
		{"-listen udp:x:1 -to tcp:x:1", "must be tcp:HOST:PORT, san:HOST:PORT or auto:HOST:PORT"},
		{"-listen tcp:x -to tcp:x:1", "missing port in address"},
		{"-listen tcp:x:1 -to san:y:0", "-to needs a port"},
		{"-listen tcp:x:1 -to san:y:1 -drain -1s", "-drain must not be negative"},
		{"-listen tcp:x:1 -to san:y:1 -timeout 0", "-timeout must be positive"},
		{"-listen tcp:x:1 -to san:y:1 extra", `unexpected argument "extra"`},
	} {
		_, err := parse(strings.Fields(c.args), io.Discard)
		assert.ErrorContains(t, err, c.want, c.args)
	}
	var out strings.Builder
	_, err := parse([]string{"-help"}, &out)
	assert.ErrorIs(t, err, flag.ErrHelp)
	assert.Contains(t, out.String(), "-drain duration")
}
