package session_test

import (
	"bytes"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/provider"
	"sansock/session"
)

// bufferConfigs are providers with each way of sending registered memory.
var bufferConfigs = map[string]emu.Config{
	"inline":     {},
	"hardware":   {MaxInline: -1, LocalRegistration: true},
	"write mode": {NoRDMARead: true, LocalRegistration: true},
}

func TestBuffersCross(t *testing.T) {
	for name, cfg := range bufferConfigs {
		for _, n := range []int{1, 100, 5000, 9000, 100 << 10, 3 << 20} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				x, y := pair(t, cfg, cfg, session.Config{})
				want := bytes.Repeat([]byte{1, 2, 3, 4, 5}, n/5+1)[:n]
				const rounds = 5
				go func() {
					for range rounds {
						b, err := x.NewBuffer(n + 10)
						if !assert.NoError(t, err) {
							return
						}
						assert.Len(t, b.Bytes(), n+10)
						copy(b.Bytes(), want)
						m, err := x.WriteBuffer(b, n)
						assert.NoError(t, err)
						assert.Equal(t, n, m)
					}
					x.CloseWrite()
				}()
				var got []byte
				for {
					b, err := y.ReadBuffer()
					if err == io.EOF {
						break
					}
					require.NoError(t, err)
					require.NotEmpty(t, b.Bytes())
					got = append(got, b.Bytes()...)
					b.Release()
				}
				assert.True(t, bytes.Equal(bytes.Repeat(want, rounds), got), "all bytes, in order")
			})
		}
	}
}

func TestBufferMisuse(t *testing.T) {
	x, y := pair(t, emu.Config{}, emu.Config{}, session.Config{})
	b, err := x.NewBuffer(10)
	require.NoError(t, err)
	b.Release()
	assert.Panics(t, func() { b.Release() })
	assert.Panics(t, func() { b.Bytes() })
	assert.Panics(t, func() { x.WriteBuffer(b, 1) })

	b, err = x.NewBuffer(10)
	require.NoError(t, err)
	_, err = x.WriteBuffer(b, 10)
	require.NoError(t, err)
	assert.Panics(t, func() { b.Release() }, "WriteBuffer has released it")

	r, err := y.ReadBuffer()
	require.NoError(t, err)
	r.Release()
	assert.Panics(t, func() { r.Bytes() })
}

// TestBufferBounds: a Buffer ends where its bytes do, whatever memory it is made of.
func TestBufferBounds(t *testing.T) {
	var full atomic.Bool
	cfg := emu.Config{Faults: emu.Faults{Hook: func(s emu.Step) error {
		if s == emu.StepAllocate && full.Load() {
			return provider.StatusNoMemory
		}
		return nil
	}}}
	x, y := pair(t, cfg, emu.Config{}, session.Config{})
	_, err := x.Write([]byte("hello"))
	require.NoError(t, err)
	r, err := y.ReadBuffer()
	require.NoError(t, err)
	assert.Equal(t, 5, cap(r.Bytes()), "a program that appends does so elsewhere")
	r.Release()

	for _, noMemory := range []bool{false, true} {
		full.Store(noMemory)
		b, err := x.NewBuffer(10)
		require.NoError(t, err)
		assert.Equal(t, 10, cap(b.Bytes()), "no registered memory: %v", noMemory)
		assert.Panics(t, func() { x.WriteBuffer(b, 11) }, "no registered memory: %v", noMemory)
		assert.Panics(t, func() { b.Bytes() }, "it is released nevertheless")
	}
	assert.EqualValues(t, 1, x.Stats().Fallbacks.Buffer)
}

// A program that keeps what it reads must not keep the peer from sending.
func TestBuffersKept(t *testing.T) {
	x, y := pair(t, emu.Config{}, emu.Config{}, session.Config{})
	const messages = 200
	go func() {
		for i := range messages {
			x.Write(bytes.Repeat([]byte{byte(i)}, 3000))
		}
		x.CloseWrite()
	}()
	var kept []*session.Buffer
	var total int
	for {
		b, err := y.ReadBuffer()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		kept = append(kept, b)
		total += len(b.Bytes())
	}
	assert.Equal(t, messages*3000, total)
	y.Close()
	x.Close()
	pos := 0
	for _, b := range kept {
		for _, v := range b.Bytes() {
			require.Equal(t, byte(pos/3000), v, "at %d: memory stays what it was after Close", pos)
			pos++
		}
		b.Release()
	}
}

func TestWriteTo(t *testing.T) {
	for name, cfg := range bufferConfigs {
		t.Run(name, func(t *testing.T) {
			x, y := pair(t, cfg, cfg, session.Config{})
			want := bytes.Repeat([]byte("0123456789"), 200<<10)
			go func() {
				for p := want; len(p) > 0; {
					n := min(len(p), 1+len(p)/3)
					x.Write(p[:n])
					p = p[n:]
				}
				x.CloseWrite()
			}()
			var got bytes.Buffer
			n, err := y.WriteTo(&got)
			require.NoError(t, err)
			assert.EqualValues(t, len(want), n)
			assert.True(t, bytes.Equal(want, got.Bytes()))
		})
	}
}

// limitWriter fails after some bytes.
type limitWriter struct{ left int }

func (w *limitWriter) Write(p []byte) (int, error) {
	if len(p) > w.left {
		n := w.left
		w.left = 0
		return n, io.ErrClosedPipe
	}
	w.left -= len(p)
	return len(p), nil
}

func TestWriteToFailingSink(t *testing.T) {
	x, y := pair(t, emu.Config{}, emu.Config{}, session.Config{})
	go func() {
		for range 100 {
			x.Write(make([]byte, 1000))
		}
		x.CloseWrite()
	}()
	n, err := y.WriteTo(&limitWriter{left: 12345})
	assert.ErrorIs(t, err, io.ErrClosedPipe)
	assert.EqualValues(t, 12345, n, "exact count")
}
