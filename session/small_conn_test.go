package session_test

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/session"
)

// The last of many small writes arrives at once although the writer does nothing any more, or reads.
func TestLastOfManyArrives(t *testing.T) {
	inBubble(t, func(t *testing.T, c emu.Config) {
		for _, reads := range []bool{false, true} {
			x, y := pair(t, c, c, session.Config{})
			start := time.Now()
			var took time.Duration
			const n = 3000
			wait := later(t, func() {
				b := make([]byte, n)
				_, err := io.ReadFull(y, b)
				assert.NoError(t, err)
				assert.Equal(t, pattern(0, n), b)
				took = time.Since(start)
				_, err = y.Write([]byte{1})
				assert.NoError(t, err)
			})
			for pos := range n {
				_, err := x.Write(pattern(uint64(pos), 1))
				require.NoError(t, err)
			}
			if reads {
				_, err := x.Read(make([]byte, 1))
				require.NoError(t, err)
			}
			wait()
			assert.Zero(t, took, "no timer is needed")
			x.Close()
			y.Close()
		}
	})
}
