package session_test

import (
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/session"
)

func TestReady(t *testing.T) {
	inBubble(t, func(t *testing.T, c emu.Config) {
		a, b := pair(t, c, c, session.Config{})
		ready := func() (bool, error) {
			synctest.Wait()
			return a.Ready()
		}
		data, err := ready()
		assert.False(t, data)
		assert.NoError(t, err)

		_, err = b.Write([]byte("data"))
		require.NoError(t, err)
		data, err = ready()
		assert.True(t, data)
		assert.NoError(t, err)
		p := make([]byte, 10)
		n, err := a.Read(p)
		require.NoError(t, err)
		assert.Equal(t, "data", string(p[:n]))

		go b.Write(make([]byte, 200<<10)) // which waits for a reader
		data, err = ready()
		assert.True(t, data)
		assert.NoError(t, err)
		_, err = io.CopyN(io.Discard, struct{ io.Reader }{a}, 200<<10)
		require.NoError(t, err)
		data, err = ready()
		assert.False(t, data)
		assert.NoError(t, err)

		require.NoError(t, b.CloseWrite())
		data, err = ready()
		assert.False(t, data)
		assert.Equal(t, io.EOF, err)
		_, err = a.Read(p)
		assert.Equal(t, io.EOF, err)
		require.NoError(t, a.Close())
		_, err = a.Ready()
		assert.Equal(t, net.ErrClosed, err)
	})
}

// The error of a connection is still told by the next Read.
func TestReadyReset(t *testing.T) {
	inBubble(t, func(t *testing.T, c emu.Config) {
		a, b := pair(t, c, c, session.Config{})
		require.NoError(t, b.SetLinger(0))
		require.NoError(t, b.Close())
		synctest.Wait()
		for range 2 {
			data, err := a.Ready()
			assert.False(t, data)
			assert.Equal(t, syscall.ECONNRESET, err)
		}
		_, err := a.Read(make([]byte, 1))
		assert.Equal(t, syscall.ECONNRESET, err)
	})
}
