package main

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"
)

func TestBufferedNettest(t *testing.T) {
	nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
		a, b := newBuffered()
		return a, b, func() { a.Close(); b.Close() }, nil
	})
}

// TestBufferedOrder: what comes out is what went in, also where the ring's end is in the middle of it.
func TestBufferedOrder(t *testing.T) {
	a, b := newBuffered()
	random := rand.New(rand.NewPCG(1, 2))
	sent := make([]byte, 40*ringSize)
	for i := range sent {
		sent[i] = byte(random.Uint32())
	}
	go func() {
		defer a.Close()
		for p := sent; len(p) > 0; {
			n := min(1+random.IntN(2*ringSize), len(p))
			a.Write(p[:n])
			p = p[n:]
		}
	}()
	var got []byte
	pieces := rand.New(rand.NewPCG(3, 4))
	for p := make([]byte, 2*ringSize); ; {
		n, err := b.Read(p[:1+pieces.IntN(len(p)-1)])
		got = append(got, p[:n]...)
		if err != nil {
			assert.Equal(t, io.EOF, err)
			break
		}
	}
	assert.True(t, bytes.Equal(sent, got))
	_, err := b.Write([]byte{1})
	assert.Equal(t, io.ErrClosedPipe, err)
}

// TestBufferedEnds: what was written before Close is read after it; a Close without it is not waited for.
func TestBufferedEnds(t *testing.T) {
	a, b := newBuffered()
	a.Write([]byte("last"))
	a.Close()
	got, err := io.ReadAll(b)
	assert.NoError(t, err)
	assert.Equal(t, "last", string(got))
	_, err = a.Read(make([]byte, 1))
	assert.Equal(t, io.ErrClosedPipe, err)

	a, b = newBuffered()
	stopped := make(chan error)
	go func() {
		_, err := a.Write(make([]byte, 2*ringSize))
		stopped <- err
	}()
	b.Read(make([]byte, 1))
	b.Close()
	assert.Equal(t, io.ErrClosedPipe, <-stopped)
}

// TestBufferedManyReaders: none sleeps where there is something for it, and writes stay together.
func TestBufferedManyReaders(t *testing.T) {
	const goroutines, messages, size = 8, 500, 48 << 10
	a, b := newBuffered()
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			p := bytes.Repeat([]byte{byte(i)}, size)
			for range messages / goroutines {
				a.Write(p)
			}
		})
	}
	p := make([]byte, size)
	for range messages / goroutines * goroutines {
		_, err := io.ReadFull(b, p)
		require.NoError(t, err)
		require.Equal(t, bytes.Count(p, p[:1]), size)
	}
	wg.Wait()

	for range goroutines {
		wg.Go(func() {
			_, err := b.Read(make([]byte, 1))
			assert.NoError(t, err)
		})
	}
	a.Write(make([]byte, goroutines))
	wg.Wait()
}

// TestBufferedDeadlines: a deadline in the past ends what waits, and none makes the connection as new.
func TestBufferedDeadlines(t *testing.T) {
	a, b := newBuffered()
	failed := make(chan error)
	go func() {
		_, err := a.Read(make([]byte, 1))
		failed <- err
	}()
	a.SetReadDeadline(time.Unix(1, 0))
	assert.Equal(t, os.ErrDeadlineExceeded, <-failed)
	a.SetReadDeadline(time.Time{})
	b.Write([]byte{1})
	_, err := a.Read(make([]byte, 1))
	assert.NoError(t, err)
	a.SetDeadline(time.Now().Add(time.Hour))
	a.Close()
	b.Close()
}
