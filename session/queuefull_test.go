package session_test

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/provider"
	"sansock/session"
)

// A provider that has no room for a message, time and again, also for the last one that anybody waits for: all arrives, and a
// hand-over and the end go their way.
func TestQueueFull(t *testing.T) {
	for name, cfg := range modes {
		t.Run(name, func(t *testing.T) {
			var full atomic.Bool
			cfg.Faults.Hook = func(s emu.Step) error {
				if s == emu.StepPostSend && full.Load() && rand.IntN(3) == 0 {
					return provider.StatusQueueFull
				}
				return nil
			}
			r := newRig(t, cfg, cfg, session.Config{})
			ends := r.connect()
			full.Store(true)
			data := make([]byte, 1<<20)
			rand.NewChaCha8([32]byte{7}).Read(data)
			got := make(chan []byte, 1)
			go func() {
				b, err := io.ReadAll(ends[1])
				assert.NoError(t, err)
				got <- b
			}()
			for p, n := data, 1; len(p) > 0; n = n*7%100_003 + 1 {
				m, err := ends[0].Write(p[:min(n, len(p))])
				require.NoError(t, err)
				p = p[m:]
			}
			require.NoError(t, ends[0].CloseWrite())
			require.True(t, bytes.Equal(data, <-got))

			// One message at a time, which nothing else brings on its way; and Buffers.
			p := make([]byte, 1000)
			for range 100 {
				b, err := ends[1].NewBuffer(1000)
				require.NoError(t, err)
				_, err = ends[1].WriteBuffer(b, 1000)
				require.NoError(t, err)
				_, err = io.ReadFull(ends[0], p)
				require.NoError(t, err)
			}
			state, err := ends[0].Handover(context.Background())
			require.NoError(t, err)
			full.Store(false)
			ends[0], err = r.resume(0, state)
			require.NoError(t, err)
			full.Store(true)
			require.NoError(t, ends[1].Close())
			_, err = ends[0].Read(p)
			require.Equal(t, io.EOF, err)
		})
	}
}
