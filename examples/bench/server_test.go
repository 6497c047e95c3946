package main

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newPipeServer returns a server and a way to it.
func newPipeServer(t *testing.T) (*server, carrier) {
	s := newServer()
	t.Cleanup(s.close)
	l := newLocalListener(net.Pipe)
	s.serve(l)
	return s, carrier{"pipe", l.dial}
}

func TestHello(t *testing.T) {
	s, via := newPipeServer(t)
	hello := func(version, job byte, size uint64) []byte {
		return binary.LittleEndian.AppendUint64(append([]byte(magic), version, job), size)
	}
	for _, c := range []struct {
		name  string
		hello []byte
		want  verdict
	}{
		{"echo", hello(version, byte(jobEcho), 1), verdictOK},
		{"largest", hello(version, byte(jobEcho), maxSize), verdictOK},
		{"version", hello(version+1, byte(jobEcho), 1), verdictVersion},
		{"no job", hello(version, 0, 1), verdictJob},
		{"unknown job", hello(version, byte(jobs), 1), verdictJob},
		{"readers", hello(version, byte(jobReaders), maxReaders), verdictOK},
		{"too many readers", hello(version, byte(jobReaders), maxReaders+1), verdictSize},
		{"no readers", hello(version, byte(jobReaders), 0), verdictSize},
		{"nothing to write", hello(version, byte(jobSource), 0), verdictSize},
		{"no size", hello(version, byte(jobStream), 0), verdictSize},
		{"too large", hello(version, byte(jobStreamTouch), maxSize+1), verdictSize},
		{"far too large", hello(version, byte(jobEcho), 1<<63), verdictSize},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := via.dial(t.Context())
			require.NoError(t, err)
			defer conn.Close()
			_, err = conn.Write(c.hello)
			require.NoError(t, err)
			answer := make([]byte, answerSize)
			_, err = io.ReadFull(conn, answer)
			require.NoError(t, err)
			assert.Equal(t, append([]byte(magic), version, byte(c.want)), answer)
			if c.want != verdictOK {
				_, err = conn.Read(answer)
				assert.Equal(t, io.EOF, err)
			}
		})
	}
	t.Run("something else", func(t *testing.T) {
		conn, err := via.dial(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "GET / HTTP/1.1\r\n")
		require.NoError(t, err)
		_, err = conn.Read(make([]byte, 1))
		assert.Equal(t, io.EOF, err)
	})
	s.settle()
	assert.Zero(t, s.memory.Load())
}

// TestGreet: what a client says of the answers that it gets.
func TestGreet(t *testing.T) {
	for answer, want := range map[string]string{
		"sbench\x01\x00":   "",
		"sbench\x02\x01":   "the server refuses: it is of another version",
		"sbench\x01\x04":   "the server refuses: it has no memory left for buffers",
		"sbench\x01\x05":   "is no bench server",
		"HTTP/1.1 400 Bad": "is no bench server",
		"sbench":           "no answer to the hello: unexpected EOF",
	} {
		client, server := net.Pipe()
		go func() {
			io.ReadFull(server, make([]byte, helloSize))
			io.WriteString(server, answer)
			server.Close()
		}()
		err := greet(client, jobOpen, 0)
		client.Close()
		if want == "" {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, want)
		}
	}
}

// TestMemoryLimit: buffers of all connections together are bounded, and those of connections that ended do not count.
func TestMemoryLimit(t *testing.T) {
	s, via := newPipeServer(t)
	s.memory.Store(maxMemory - 100)
	connect := func(size int) (net.Conn, error) {
		c, err := via.dial(t.Context())
		require.NoError(t, err)
		return c, greet(c, jobEcho, size)
	}
	first, err := connect(60)
	require.NoError(t, err)
	second, err := connect(60)
	assert.ErrorContains(t, err, verdictText[verdictMemory])
	second.Close()
	first.Close()
	s.settle()
	assert.Equal(t, int64(maxMemory-100), s.memory.Load())
	third, err := connect(100)
	assert.NoError(t, err)
	third.Close()
}

// TestSettle: waits for connections to go, and not for the control connection, nor forever.
func TestSettle(t *testing.T) {
	s, via := newPipeServer(t)
	ctl, err := dialControl(t.Context(), via)
	require.NoError(t, err)
	defer ctl.close()
	c, err := via.dial(t.Context())
	require.NoError(t, err)
	require.NoError(t, greet(c, jobOpen, 0))
	s.mu.Lock()
	assert.Len(t, s.conns, 2)
	s.mu.Unlock()
	s.settle() // a second
	c.Close()
	s.settle()
	s.mu.Lock()
	assert.Len(t, s.conns, 1)
	s.mu.Unlock()
	u, err := ctl.usage(askSettle)
	require.NoError(t, err)
	assert.Equal(t, usage{CPU: u.CPU}, u)
	u, err = ctl.usage(askAll)
	require.NoError(t, err)
	assert.Positive(t, u.Goroutines)
}

// TestStreamCounts: the reader says how much came, batch by batch, and ends where it makes no sense.
func TestStreamCounts(t *testing.T) {
	for _, touch := range []bool{false, true} {
		client, server := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			serveStream(server, make([]byte, 100), touch)
		}()
		length := make([]byte, 8)
		for _, n := range []int{1, 100, 1000} {
			binary.LittleEndian.PutUint64(length, uint64(n))
			client.Write(length)
			client.Write(make([]byte, n))
			_, err := io.ReadFull(client, length)
			require.NoError(t, err)
			assert.Equal(t, uint64(n), binary.LittleEndian.Uint64(length))
		}
		binary.LittleEndian.PutUint64(length, 1<<63)
		client.Write(length)
		client.Close()
		<-done
	}
}

// TestReadersCount: many readers together read what a batch has, and no more.
func TestReadersCount(t *testing.T) {
	for _, goroutines := range []int{1, 3, 8} {
		client, server := newBuffered()
		done := make(chan struct{})
		go func() {
			defer close(done)
			serveReaders(server, goroutines, make([]byte, goroutines*readSize))
		}()
		length := make([]byte, 8)
		for _, n := range []int{1, readSize, 100*readSize + 1} {
			binary.LittleEndian.PutUint64(length, uint64(n))
			client.Write(length)
			client.Write(make([]byte, n))
			require.NoError(t, readTotal(client, uint64(n)))
		}
		// What makes no sense is nothing, and a batch may be cut short.
		binary.LittleEndian.PutUint64(length, 1<<63)
		client.Write(length)
		require.NoError(t, readTotal(client, 0))
		binary.LittleEndian.PutUint64(length, 100)
		client.Write(length)
		client.Write(make([]byte, 99))
		client.Close()
		<-done
	}
}

// TestSource: writes until the client goes, also to one that does not read.
func TestSource(t *testing.T) {
	client, server := newBuffered()
	done := make(chan struct{})
	go func() {
		defer close(done)
		serveSource(server, make([]byte, 1000))
	}()
	_, err := io.ReadFull(client, make([]byte, 2*ringSize))
	require.NoError(t, err)
	client.Close()
	<-done
}

func TestBadBodies(t *testing.T) {
	s, via := newPipeServer(t)
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := via.dial(ctx)
		if err == nil {
			err = greet(c, jobHTTP, 0)
		}
		return c, err
	}}
	for path, status := range map[string]int{"/7": 200, "/": 400, "/-1": 400, "/1048576": 200, "/1048577": 400, "/x": 400} {
		r, err := (&http.Client{Transport: tr}).Get("http://bench" + path)
		require.NoError(t, err)
		io.Copy(io.Discard, r.Body)
		r.Body.Close()
		assert.Equal(t, status, r.StatusCode, path)
	}
	tr.CloseIdleConnections()
	s.settle()
	s.mu.Lock()
	assert.Empty(t, s.conns)
	s.mu.Unlock()
}

// TestMeasure: warms up, and ends with about the time asked for.
func TestMeasure(t *testing.T) {
	s := newServer()
	defer s.close()
	r := &rig{local: s}
	tr := newTrial(t.Context(), r, carrier{}, 20*time.Millisecond)
	var ns []int
	o, err := tr.measure(func(n int) error {
		ns = append(ns, n)
		time.Sleep(time.Duration(n) * time.Millisecond)
		return nil
	})
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(ns), 2)
	assert.Equal(t, 1, ns[0])
	assert.Equal(t, ns[len(ns)-1], o.n)
	assert.GreaterOrEqual(t, o.took, 15*time.Millisecond)

	broken := errors.New("broken")
	_, err = tr.measure(func(n int) error {
		if n > 1 {
			return broken
		}
		return nil
	})
	assert.Equal(t, broken, err)

	// The time runs out also where nothing waits for it.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = newTrial(ctx, r, carrier{}, time.Hour).measure(func(int) error { return nil })
	assert.Equal(t, context.Canceled, err)
}

func TestSpread(t *testing.T) {
	counts := make([]int, 4)
	require.NoError(t, spread(4, 1000, func(i int) error { counts[i]++; return nil }))
	sum := 0
	for _, n := range counts {
		sum += n
	}
	assert.Equal(t, 1000, sum)
	require.NoError(t, spread(4, 2, func(i int) error { assert.Less(t, i, 2); return nil }))
	broken := errors.New("broken")
	var calls atomic.Int64
	assert.Equal(t, broken, spread(4, 1000, func(i int) error {
		if calls.Add(1) >= 500 { // none comes back after that
			return broken
		}
		return nil
	}))
	assert.LessOrEqual(t, calls.Load(), int64(503))
}
