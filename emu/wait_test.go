package emu

import (
	"bytes"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/provider"
)

// blocked runs f and requires that it waits until release has been called.
func blocked(t *testing.T, f, release func()) {
	done := false
	var wg sync.WaitGroup
	wg.Go(func() {
		f()
		done = true
	})
	synctest.Wait()
	require.False(t, done)
	release()
	wg.Wait()
}

func TestLockWakesEverySleeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, _ := pair(t, Config{})
		e := x.Endpoint.(*endpoint)
		n := 0
		var wg sync.WaitGroup
		e.lock()
		for range 5 {
			wg.Go(func() {
				e.lock()
				n++
				e.unlock()
			})
		}
		synctest.Wait() // all asleep
		e.unlock()
		wg.Wait()
		require.Equal(t, 5, n)
		require.Zero(t, e.state.Load()&^lockContended)
	})
}

func TestLockExcludes(t *testing.T) {
	x, _ := pair(t, Config{})
	e := x.Endpoint.(*endpoint)
	n := 0
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 2000 {
				e.lock()
				n++
				if n%50 == 0 {
					runtime.Gosched() // lose the processor with the lock held
				}
				e.unlock()
				e.Arm(provider.WakeAny)
			}
		})
	}
	wg.Wait()
	require.Equal(t, 8000, n)
}

// TestWaits holds open what Close and Deregister must wait for.
func TestWaits(t *testing.T) {
	hold := func(e *endpoint, count func(*endpoint, int32)) func() {
		e.lock()
		count(e, 1)
		e.unlock()
		return func() {
			e.lock()
			count(e, -1)
			e.signal()
			e.unlock()
		}
	}
	for name, count := range map[string]func(*endpoint, int32){
		"own operation":     func(e *endpoint, n int32) { e.work.own += n },
		"the peer's access": func(e *endpoint, n int32) { e.work.peers += n },
		"a long message":    func(e *endpoint, n int32) { e.rq.copying = n > 0 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x, _ := pair(t, Config{})
				blocked(t, func() { x.Close() }, hold(x.Endpoint.(*endpoint), count))
			})
		})
	}
	t.Run("a long message to the peer", func(t *testing.T) {
		// It comes from this side's memory.
		synctest.Test(t, func(t *testing.T) {
			x, y := pair(t, Config{})
			blocked(t, func() { x.Close() }, hold(y.Endpoint.(*endpoint), func(e *endpoint, n int32) { e.rq.copying = n > 0 }))
		})
	})
	t.Run("deregister", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			x, y := pair(t, Config{})
			r := x.expose(make([]byte, 8), provider.RightWrite)
			release := hold(x.Endpoint.(*endpoint), func(e *endpoint, n int32) { e.table.Slots[0].Access += n })
			blocked(t, func() { assert.NoError(t, x.Deregister(r.Handle)) }, func() {
				assert.Equal(t, provider.StatusAccess, x.Deregister(r.Handle), "gone already")
				assert.NoError(t, y.PostWrite(provider.RDMA{Local: provider.Segment{Bytes: []byte("x")}, Remote: r.Descriptor}))
				assert.Zero(t, r.Bytes[0])
				release()
			})
		})
	})
	t.Run("wake", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			x, y := pair(t, Config{})
			y.receives(1, 8)
			c := make(chan struct{})
			y.OnWake(func() { <-c })
			y.Arm(provider.WakeAny)
			go x.PostSend(inline("x"))
			synctest.Wait()
			blocked(t, func() { y.Close() }, func() { close(c) })
		})
	})
}

// TestTheEndIsLast cuts a connection while an operation is under way: its completion comes before
// the end, which waits for it, and wakes.
func TestTheEndIsLast(t *testing.T) {
	for _, c := range []Config{{}, {Completions: Completions{Batch: 100}}} {
		synctest.Test(t, func(t *testing.T) {
			x, y := pair(t, c)
			y.receives(1, 8)
			e := y.Endpoint.(*endpoint)
			mem := y.local(make([]byte, 8))
			i, err := e.begin(&mem, provider.OpWrite, true)
			require.NoError(t, err)
			x.Close()
			require.Empty(t, y.all())
			require.False(t, y.Arm(provider.WakeSolicited))
			require.Equal(t, provider.StatusBusy, y.Deregister(mem.Handle))
			require.NoError(t, e.end(4, i, provider.OpWrite, provider.StatusOK))
			<-y.wake
			require.Equal(t, []provider.Completion{
				{Context: 4, Op: provider.OpWrite},
				{Context: 0, Op: provider.OpRecv, Status: provider.StatusAborted},
				{Op: provider.OpDisconnect, Status: provider.StatusDisconnected},
			}, y.all())
		})
	}
}

// TestLongTransfersAreCutShort revokes memory, or ends the connection, in the middle of a long
// transfer.
func TestLongTransfersAreCutShort(t *testing.T) {
	// With one processor the transfer is over before anybody else runs.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))))
	src := bytes.Repeat([]byte{1}, largeRDMA+3*largeRDMAPiece)
	for name, c := range map[string]struct {
		cut    func(y *end, r provider.Region)
		status provider.Status
	}{
		"deregistered": {func(y *end, r provider.Region) { y.Deregister(r.Handle) }, provider.StatusAccess},
		"closed":       {func(y *end, r provider.Region) { y.Close() }, provider.StatusAborted},
	} {
		t.Run(name, func(t *testing.T) {
			for range 50 { // some may be too fast
				x, y := pair(t, Config{})
				mem := make([]byte, len(src))
				r := y.expose(mem, provider.RightWrite)
				var wg sync.WaitGroup
				var done atomic.Bool
				wg.Go(func() {
					defer done.Store(true)
					assert.NoError(t, x.PostWrite(provider.RDMA{Local: provider.Segment{Bytes: src}, Remote: r.Descriptor}))
				})
				e := y.Endpoint.(*endpoint)
				for begun := false; !begun && !done.Load(); runtime.Gosched() {
					e.lock()
					begun = e.work.peers > 0
					e.unlock()
				}
				c.cut(y, r)
				copied := bytes.Count(mem, []byte{1}) // nobody writes any more
				wg.Wait()
				require.Equal(t, copied, bytes.Count(mem, []byte{1}))
				if st := x.next().Status; st != provider.StatusOK {
					require.Equal(t, c.status, st)
					require.Less(t, copied, len(src))
					return
				}
			}
			require.Fail(t, "never cut short")
		})
	}
}
