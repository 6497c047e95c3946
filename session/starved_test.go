package session_test

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/session"
)

// Two ends of which one sends small writes into a full receive buffer: the other direction's transfer still ends.
func TestDoneIsNotStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := emu.Config{SameProcess: true}
		x, y := pair(t, c, c, session.Config{ReadBuffer: 16 << 10})
		const big = 8 << 20
		done := make(chan error, 1)
		go func() { _, err := y.Write(make([]byte, big)); done <- err }()
		synctest.Wait()
		go func() {
			for {
				if _, err := x.Write(make([]byte, 4000)); err != nil {
					return
				}
			}
		}()
		time.Sleep(time.Second)
		_, err := io.ReadFull(x, make([]byte, big))
		require.NoError(t, err)
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(time.Hour):
			t.Error("all is read, and Write does not return")
		}
	})
}

// A Write that waits for a peer that is well but does not read is not a lost peer.
func TestKeepAliveIsNotStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := emu.Config{SameProcess: true}
		x, y := pair(t, c, c, session.Config{ReadBuffer: 16 << 10})
		x.SetKeepAlive(15*time.Second, 15*time.Second, 9)
		wait := later(t, func() {
			for {
				if _, err := x.Write(make([]byte, 12000)); err != nil {
					return
				}
			}
		})
		time.Sleep(200 * time.Second)
		_, err := io.ReadFull(y, make([]byte, 500<<10))
		require.NoError(t, err)
		x.Close()
		wait()
	})
}

// A write that fits the receive buffer returns without a reader, also where RDMA reads take their time.
func TestBackgroundGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := emu.Config{SameProcess: true, Link: emu.Link{Latency: time.Millisecond}}
		x, _ := pair(t, c, c, session.Config{})
		x.SetWriteDeadline(time.Now().Add(time.Minute))
		_, err := x.Write(make([]byte, 1<<20))
		require.NoError(t, err)
	})
}

// Small writes beyond the first credits arrive although nobody is at work in between.
func TestSmallWritesArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := emu.Config{SameProcess: true}
		x, y := pair(t, c, c, session.Config{})
		for range 8 {
			_, err := x.Write([]byte{1})
			require.NoError(t, err)
		}
		synctest.Wait()
		b := make([]byte, 1)
		_, err := y.Read(b)
		require.NoError(t, err)
		_, err = y.Write(b)
		require.NoError(t, err)
		y.SetReadDeadline(time.Now().Add(time.Minute))
		_, err = io.ReadFull(y, make([]byte, 7))
		require.NoError(t, err)
	})
}
