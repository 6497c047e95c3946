package session_test

import (
	"encoding/binary"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/session"
)

// One Write of more than 4 GiB. By hand: SANSOCK_HUGE=1.
func TestHugeWrite(t *testing.T) {
	if os.Getenv("SANSOCK_HUGE") == "" {
		t.Skip("needs 5 GiB of memory; set SANSOCK_HUGE=1")
	}
	for name, cfg := range map[string]emu.Config{"read mode": {}, "write mode": {NoRDMARead: true}} {
		t.Run(name, func(t *testing.T) {
			x, y := pair(t, cfg, cfg, session.Config{})
			const mark = 64 << 20
			total := int64(1<<32 + 12345)
			size := int(total)
			if int64(size) != total {
				t.Skip("an int has too few bits")
			}
			p := make([]byte, size)
			for i := 0; i+8 <= size; i += mark {
				binary.LittleEndian.PutUint64(p[i:], uint64(i)+1)
			}
			done := make(chan error, 1)
			go func() {
				n, err := x.Write(p)
				assert.Equal(t, size, n)
				done <- err
			}()
			buf := make([]byte, 8<<20)
			for got := 0; got < size; {
				n, err := y.Read(buf[:min(len(buf), mark-got%mark)])
				require.NoError(t, err)
				if got%mark == 0 && n >= 8 {
					require.Equal(t, uint64(got)+1, binary.LittleEndian.Uint64(buf))
				}
				got += n
			}
			require.NoError(t, <-done)
		})
	}
}
