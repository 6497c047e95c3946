package session_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/session"
)

// An urgent message arrives while a Write waits and nobody reads, and while a Read waits.
func TestUrgentConn(t *testing.T) {
	for name, cfg := range modes {
		t.Run(name, func(t *testing.T) {
			x, y := pair(t, cfg, cfg, session.Config{ReadBuffer: 64 << 10})
			ctx := context.Background()
			big := make([]byte, 1<<20)
			done := make(chan error, 1)
			go func() { _, err := x.Write(big); done <- err }()
			for range 50 {
				require.NoError(t, x.WriteUrgent(ctx, []byte("stop")))
				m, err := y.ReadUrgent(ctx)
				require.NoError(t, err)
				require.Equal(t, "stop", string(m.Data))
				require.GreaterOrEqual(t, m.Ahead, int64(0))
				require.LessOrEqual(t, m.Ahead, int64(len(big)))
			}
			select {
			case err := <-done:
				t.Fatalf("the write has returned %v", err)
			default:
			}
			got := make([]byte, len(big))
			_, err := io.ReadFull(y, got)
			require.NoError(t, err)
			require.NoError(t, <-done)
			require.Equal(t, len(big), bytes.Count(got, []byte{0}))

			require.NoError(t, x.WriteUrgent(ctx, []byte("now")))
			m, err := y.ReadUrgent(ctx)
			require.NoError(t, err)
			assert.Zero(t, m.Ahead)

			// The other way, past a Read that waits.
			go func() { _, err := x.Read(make([]byte, 1)); done <- err }()
			go func() { y.WriteUrgent(ctx, []byte("?")) }()
			m, err = x.ReadUrgent(ctx)
			require.NoError(t, err)
			assert.Equal(t, "?", string(m.Data))
			_, err = y.Write([]byte("."))
			require.NoError(t, err)
			require.NoError(t, <-done)
		})
	}
}

// Many at once, from several goroutines, all arrive.
func TestUrgentConcurrent(t *testing.T) {
	x, y := pair(t, emu.Config{}, emu.Config{}, session.Config{})
	ctx := context.Background()
	const writers, each = 4, 200
	errs := make(chan error, writers)
	for w := range writers {
		go func() {
			for i := range each {
				if err := x.WriteUrgent(ctx, []byte{byte(w), byte(i)}); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	var next [writers]int
	for range writers * each {
		m, err := y.ReadUrgent(ctx)
		require.NoError(t, err)
		require.EqualValues(t, next[m.Data[0]], m.Data[1], "each writer's come in order")
		next[m.Data[0]]++
	}
	for range writers {
		require.NoError(t, <-errs)
	}
}

func TestUrgentWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := pair(t, emu.Config{}, emu.Config{}, session.Config{})
		ctx := context.Background()

		// Until the context ends.
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		start := time.Now()
		_, err := y.ReadUrgent(short)
		assert.Equal(t, context.DeadlineExceeded, err)
		assert.Equal(t, time.Second, time.Since(start))
		cause := errors.New("enough")
		canceled, stop := context.WithCancelCause(ctx)
		stop(cause)
		_, err = y.ReadUrgent(canceled)
		assert.Equal(t, cause, err)
		assert.Equal(t, cause, x.WriteUrgent(canceled, []byte("x")))

		// A reader who does not take them stops the writer, and lets it go on.
		n := 0
		for {
			brief, cancel := context.WithTimeout(ctx, time.Second)
			err := x.WriteUrgent(brief, []byte("x"))
			cancel()
			if err != nil {
				assert.Equal(t, context.DeadlineExceeded, err)
				break
			}
			n++
		}
		assert.Equal(t, 16, n)
		done := make(chan error, 1)
		go func() { done <- x.WriteUrgent(ctx, []byte("last")) }()
		synctest.Wait()
		for range n {
			_, err := y.ReadUrgent(ctx)
			require.NoError(t, err)
		}
		require.NoError(t, <-done)
		m, err := y.ReadUrgent(ctx)
		require.NoError(t, err)
		assert.Equal(t, "last", string(m.Data))

		// Sizes.
		assert.Equal(t, syscall.EMSGSIZE, x.WriteUrgent(ctx, make([]byte, session.MaxUrgent+1)))
		assert.NoError(t, x.WriteUrgent(ctx, nil))
		require.NoError(t, x.WriteUrgent(ctx, make([]byte, session.MaxUrgent)))
		m, err = y.ReadUrgent(ctx)
		require.NoError(t, err)
		assert.Len(t, m.Data, session.MaxUrgent)

		// Deadlines do not matter.
		past := time.Now().Add(-time.Second)
		require.NoError(t, x.SetDeadline(past))
		require.NoError(t, y.SetDeadline(past))
		require.NoError(t, x.WriteUrgent(ctx, []byte("late")))
		_, err = y.ReadUrgent(ctx)
		require.NoError(t, err)

		// The ends: CloseWrite, Close, on both sides, also while they are waited for.
		read := func(c *session.Conn) chan error {
			ch := make(chan error, 1)
			go func() { _, err := c.ReadUrgent(ctx); ch <- err }()
			synctest.Wait()
			return ch
		}
		waiting := read(y)
		require.NoError(t, x.CloseWrite())
		assert.Equal(t, io.EOF, <-waiting)
		assert.Equal(t, syscall.EPIPE, x.WriteUrgent(ctx, []byte("x")))
		waiting = read(x)
		require.NoError(t, x.CloseRead())
		assert.Equal(t, io.EOF, <-waiting)
		for range 50 {
			require.NoError(t, y.WriteUrgent(ctx, []byte("nobody listens")))
		}

		x, y = pair(t, emu.Config{}, emu.Config{}, session.Config{})
		for range 16 {
			require.NoError(t, x.WriteUrgent(ctx, []byte("x")))
		}
		waiting = read(x)
		go func() { done <- x.WriteUrgent(ctx, []byte("x")) }()
		synctest.Wait()
		require.NoError(t, x.Close())
		assert.Equal(t, net.ErrClosed, <-waiting)
		assert.Equal(t, net.ErrClosed, <-done)
		assert.Equal(t, net.ErrClosed, x.WriteUrgent(ctx, []byte("x")))
		for range 16 {
			_, err := y.ReadUrgent(ctx)
			require.NoError(t, err, "what had arrived can be read")
		}
		_, err = y.ReadUrgent(ctx)
		assert.Equal(t, io.EOF, err)

		// A reset.
		x, y = pair(t, emu.Config{}, emu.Config{}, session.Config{})
		waiting = read(y)
		require.NoError(t, x.SetLinger(0))
		require.NoError(t, x.Close())
		assert.Equal(t, syscall.ECONNRESET, <-waiting)
		assert.Equal(t, syscall.ECONNRESET, y.WriteUrgent(ctx, []byte("x")))
		_, err = y.Read(make([]byte, 1))
		assert.Equal(t, syscall.ECONNRESET, err, "the error is still Read's")
	})
}
