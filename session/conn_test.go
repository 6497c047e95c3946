package session_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/provider"
	"sansock/session"
	"sansock/session/sessiontest"
)

// modes are providers with each way in which large writes cross.
var modes = map[string]emu.Config{
	"read":     {},
	"write":    {NoRDMARead: true},
	"hardware": {MaxInline: -1, LocalRegistration: true, MaxRDMA: 50_000, MaxMessage: 8 << 10},
	"narrow":   {MaxInline: 64, NoRDMARead: true, LocalRegistration: true, MaxRDMA: 70_000},
}

func forModes(t *testing.T, f func(t *testing.T, c emu.Config)) {
	for name, c := range modes {
		t.Run(name, func(t *testing.T) { f(t, c) })
	}
}

// inBubble is forModes with a clock of its own.
func inBubble(t *testing.T, f func(t *testing.T, c emu.Config)) {
	forModes(t, func(t *testing.T, c emu.Config) {
		synctest.Test(t, func(t *testing.T) { f(t, c) })
	})
}

// less returns n, or raced with the race detector, which makes everything slow.
func less(n, raced int) int {
	if session.RaceEnabled {
		return raced
	}
	return n
}

// pattern returns n bytes that are different at every place of a stream.
func pattern(pos uint64, n int) []byte {
	b := make([]byte, n)
	putPattern(b, pos)
	return b
}

// putPattern and isPattern are those of the randomised traffic.
func putPattern(b []byte, pos uint64)     { sessiontest.PutPattern(b, pos) }
func isPattern(b []byte, pos uint64) bool { return sessiontest.IsPattern(b, pos) }

// later runs f in a goroutine and returns a function that waits for its end.
func later(t testing.TB, f func()) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	wait = func() { <-done }
	t.Cleanup(wait)
	return wait
}

// Writes from many goroutines are contiguous, and Reads from many goroutines lose nothing.
func TestConcurrentWrites(t *testing.T) {
	forModes(t, func(t *testing.T, c emu.Config) {
		x, y := pair(t, c, c, session.Config{})
		const writers, records = 8, 40
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(1, uint64(w)))
				for i := range records {
					n := []int{8, 100, 3000, 20_000, 150_000}[r.IntN(5)] + r.IntN(100)
					b := bytes.Repeat([]byte{byte(w)}, n)
					binary.LittleEndian.PutUint32(b, uint32(n))
					b[4], b[5] = byte(w), byte(i)
					m, err := x.Write(b)
					assert.NoError(t, err)
					assert.Equal(t, n, m)
				}
			})
		}
		later(t, func() { wg.Wait(); x.CloseWrite() })
		next := [writers]int{}
		head := make([]byte, 8)
		for {
			_, err := io.ReadFull(y, head)
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
			w := int(head[4])
			require.Less(t, w, writers)
			require.EqualValues(t, next[w], head[5], "records of one writer keep their order")
			next[w]++
			body := make([]byte, int(binary.LittleEndian.Uint32(head))-8)
			_, err = io.ReadFull(y, body)
			require.NoError(t, err)
			require.Equal(t, len(body), bytes.Count(body, []byte{byte(w)}), "a record is in one piece")
		}
		for w := range next {
			assert.Equal(t, records, next[w])
		}
	})
}

func TestConcurrentReads(t *testing.T) {
	forModes(t, func(t *testing.T, c emu.Config) {
		x, y := pair(t, c, c, session.Config{})
		var wg sync.WaitGroup
		var mu sync.Mutex
		counts := map[byte]int{}
		for range 4 {
			wg.Go(func() {
				b := make([]byte, 30_000)
				for {
					n, err := y.Read(b)
					mu.Lock()
					for _, v := range b[:n] {
						counts[v]++
					}
					mu.Unlock()
					if err != nil {
						assert.Equal(t, io.EOF, err)
						return
					}
				}
			})
		}
		for i := range 100 {
			_, err := x.Write(bytes.Repeat([]byte{byte(i)}, 1000*(1+i%50)))
			require.NoError(t, err)
		}
		x.CloseWrite()
		wg.Wait()
		for i := range 100 {
			assert.Equal(t, 1000*(1+i%50), counts[byte(i)])
		}
	})
}

// Two ends that both write up to the receive buffer before they read.
func TestBothWriteFirst(t *testing.T) {
	forModes(t, func(t *testing.T, c emu.Config) {
		for _, size := range []int{less(1000, 5000), 9000, 4 << 20} {
			x, y := pair(t, c, c, session.Config{Threshold: 16 << 10})
			var wg sync.WaitGroup
			for _, c := range []*session.Conn{x, y} {
				wg.Go(func() {
					for pos := 0; pos < 4<<20; pos += size {
						m, err := c.Write(pattern(uint64(pos), min(size, 4<<20-pos)))
						assert.NoError(t, err)
						assert.Equal(t, min(size, 4<<20-pos), m)
					}
					b := make([]byte, 4<<20)
					_, err := io.ReadFull(c, b)
					assert.NoError(t, err)
					assert.True(t, isPattern(b, 0))
				})
			}
			wg.Wait()
		}
	})
}

// A Write that waits never stops a Read on the same connection.
func TestBlockedWriteDoesNotStopRead(t *testing.T) {
	forModes(t, func(t *testing.T, c emu.Config) {
		x, y := pair(t, c, c, session.Config{ReadBuffer: 64 << 10})
		later(t, func() {
			_, err := x.Write(make([]byte, 8<<20)) // nobody reads this
			assert.Equal(t, net.ErrClosed, err)
		})
		for i := range 200 {
			want := pattern(uint64(i), 100+i*500)
			wait := later(t, func() {
				_, err := y.Write(want)
				assert.NoError(t, err)
			})
			got := make([]byte, len(want))
			_, err := io.ReadFull(x, got)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, got))
			wait()
		}
		x.Close()
	})
}

// Nothing runs while data waits for a reader that stays away, and all goes on when it comes back.
func TestQuietWhileNobodyReads(t *testing.T) {
	inBubble(t, func(t *testing.T, c emu.Config) {
		for _, size := range []int{100, 5000, 3 << 20} {
			x, y := pair(t, c, c, session.Config{ReadBuffer: 100_000})
			var sent int
			wait := later(t, func() {
				for sent < 3<<20 {
					n, err := x.Write(pattern(uint64(sent), size))
					sent += n
					assert.NoError(t, err)
				}
				x.CloseWrite()
			})
			time.Sleep(time.Second)
			synctest.Wait()
			assert.True(t, session.Quiet(x) && session.Quiet(y), "size %d", size)
			// A little is read: more is taken in, and again all is quiet.
			b := make([]byte, 60_000)
			_, err := io.ReadFull(y, b)
			require.NoError(t, err)
			assert.True(t, isPatternOf(size, b, 0))
			time.Sleep(time.Second)
			synctest.Wait()
			assert.True(t, session.Quiet(x) && session.Quiet(y), "size %d", size)
			require.NoError(t, y.SetReadBuffer(4<<20))
			time.Sleep(time.Second)
			wait() // there is room for all of it now
			rest, err := io.ReadAll(y)
			require.NoError(t, err)
			assert.Equal(t, sent, len(b)+len(rest))
			assert.True(t, isPatternOf(size, rest, len(b)))
			x.Close()
			y.Close()
		}
	})
}

// isPatternOf is isPattern for a stream of writes of one size, each of which was made with its place.
func isPatternOf(_ int, b []byte, pos int) bool { return isPattern(b, uint64(pos)) }

func TestDeadlinePast(t *testing.T) {
	forModes(t, func(t *testing.T, c emu.Config) {
		x, y := pair(t, c, c, session.Config{})
		_, err := x.Write([]byte("there"))
		require.NoError(t, err)
		past := time.Now().Add(-time.Hour)
		require.NoError(t, y.SetDeadline(past))
		b := make([]byte, 10)
		for range 2 {
			n, err := y.Read(b)
			assert.Zero(t, n)
			assert.ErrorIs(t, err, os.ErrDeadlineExceeded, "also where there is data")
			for _, size := range []int{0, 1, 1 << 20} {
				n, err = y.Write(make([]byte, size))
				assert.Zero(t, n)
				assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
			}
		}
		n, err := y.Read(nil)
		assert.True(t, n == 0 && err == nil)
		require.NoError(t, y.SetReadDeadline(time.Time{}))
		n, err = y.Read(b)
		assert.NoError(t, err)
		assert.Equal(t, "there", string(b[:n]))
		require.NoError(t, y.SetWriteDeadline(time.Now().Add(1000*time.Hour)))
		_, err = y.Write([]byte("back"))
		assert.NoError(t, err)
		n, err = x.Read(b)
		assert.NoError(t, err)
		assert.Equal(t, "back", string(b[:n]))
	})
}

// A deadline ends a Read and a Write that wait, at its moment, also when it is moved meanwhile, and the connection
// can be used on.
func TestDeadlineWhileWaiting(t *testing.T) {
	inBubble(t, func(t *testing.T, c emu.Config) {
		x, y := pair(t, c, c, session.Config{ReadBuffer: 64 << 10})
		start := time.Now()
		since := func() time.Duration { return time.Since(start) }
		require.NoError(t, y.SetReadDeadline(start.Add(10*time.Second)))
		wait := later(t, func() {
			_, err := y.Read(make([]byte, 10))
			assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
			assert.Equal(t, 20*time.Second, since())
		})
		time.Sleep(time.Second)
		require.NoError(t, y.SetReadDeadline(start.Add(time.Hour)))
		time.Sleep(14 * time.Second)
		require.NoError(t, y.SetReadDeadline(time.Time{}))
		time.Sleep(time.Second)
		require.NoError(t, y.SetReadDeadline(start.Add(20*time.Second)))
		wait()

		require.NoError(t, y.SetReadDeadline(time.Time{}))
		wait = later(t, func() {
			_, err := y.Read(make([]byte, 10))
			assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
			assert.Equal(t, 21*time.Second, since())
		})
		time.Sleep(time.Second)
		require.NoError(t, y.SetReadDeadline(time.Unix(1, 0))) // net/http does this
		wait()
		require.NoError(t, y.SetReadDeadline(time.Time{}))

		pos := uint64(0)
		for _, size := range []int{1 << 20, 200, 9000} {
			start = time.Now()
			require.NoError(t, x.SetWriteDeadline(start.Add(10*time.Second)))
			for {
				n, err := x.Write(pattern(pos, size))
				pos += uint64(n)
				if err != nil {
					assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
					break
				}
			}
			assert.Equal(t, 10*time.Second, since(), "size %d", size)
			assert.NotZero(t, pos)
			n, err := x.Write([]byte{1})
			assert.Zero(t, n)
			assert.ErrorIs(t, err, os.ErrDeadlineExceeded, "it is still over")
			require.NoError(t, x.SetWriteDeadline(time.Time{}))
		}
		later(t, func() {
			_, err := x.Write(pattern(pos, 300_000))
			assert.NoError(t, err)
			x.CloseWrite()
		})
		got, err := io.ReadAll(y)
		require.NoError(t, err)
		assert.Equal(t, int(pos)+300_000, len(got), "what was counted arrives, and no more")
		assert.True(t, isPattern(got, 0))
	})
}

// Over a link with some latency and little bandwidth, deadlines of either side end transfers at any of their stages.
func TestDeadlineDuringTransfer(t *testing.T) {
	inBubble(t, func(t *testing.T, c emu.Config) {
		c.Link = emu.Link{Latency: 20 * time.Millisecond, Bandwidth: 10 << 20}
		for _, who := range []string{"reader", "writer", "both"} {
			x, y := pair(t, c, c, session.Config{})
			const size = 400_000 // takes 40 ms and some messages
			r := rand.New(rand.NewPCG(1, 2))
			sent, got := uint64(0), uint64(0)
			over := make(chan struct{})
			later(t, func() {
				defer close(over)
				for range less(25, 8) {
					if who != "reader" {
						x.SetWriteDeadline(time.Now().Add(time.Duration(r.IntN(200)) * time.Millisecond))
					}
					n, err := x.Write(pattern(sent, size))
					sent += uint64(n)
					if err != nil {
						assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
						assert.Less(t, n, size)
					} else {
						assert.Equal(t, size, n)
					}
				}
				x.SetWriteDeadline(time.Time{})
				n, err := x.Write(pattern(sent, 1000))
				assert.NoError(t, err, who)
				sent += uint64(n)
				x.CloseWrite()
			})
			s := rand.New(rand.NewPCG(3, 4))
			b := make([]byte, size+1)
			for {
				if who != "writer" {
					y.SetReadDeadline(time.Now().Add(time.Duration(s.IntN(100)) * time.Millisecond))
				}
				p := b[:1+s.IntN(size)]
				n, err := y.Read(p)
				if !assert.True(t, isPattern(p[:n], got), "%s: wrong bytes behind %d", who, got) {
					break
				}
				got += uint64(n)
				if err == io.EOF {
					break
				}
				if err != nil && !assert.ErrorIs(t, err, os.ErrDeadlineExceeded) {
					break
				}
			}
			<-over
			assert.Equal(t, sent, got, who)
		}
	})
}

// A Read and a Write that both wait for transfers do not wake each other all the time: in the bubble, no time would pass.
func TestWaitersLeaveEachOtherAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, c emu.Config) {
		c.Link = emu.Link{Latency: 10 * time.Millisecond, Bandwidth: 50 << 20}
		x, y := pair(t, c, c, session.Config{})
		var wg sync.WaitGroup
		for _, c := range []*session.Conn{x, y} {
			wg.Go(func() {
				_, err := c.Write(make([]byte, 4<<20))
				assert.NoError(t, err)
				c.CloseWrite()
			})
			wg.Go(func() {
				b := make([]byte, 1<<20)
				for {
					if _, err := c.Read(b); err != nil {
						assert.Equal(t, io.EOF, err)
						break
					}
				}
			})
		}
		time.Sleep(25 * time.Millisecond) // pieces are under way
		assert.NoError(t, x.CloseRead())
		wg.Wait()
	})
}

// A peer that never gives memory back costs the connection, after a time.
func TestRevokeTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, c emu.Config) {
		r := newRig(t, c, c, session.Config{})
		ends := r.connect()
		x, y := ends[0], ends[1]
		require.NoError(t, x.SetWriteDeadline(time.Now().Add(time.Second)))
		emu.DropLink(r.eps[0])
		start := time.Now()
		n, err := x.Write(make([]byte, 1<<20))
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.Less(t, n, 1<<20)
		assert.Equal(t, time.Second+session.RevokeTimeout, time.Since(start))
		assert.True(t, session.Over(x))
		require.NoError(t, x.SetDeadline(time.Time{}))
		_, err = x.Write([]byte{1})
		assert.Equal(t, syscall.ETIMEDOUT, err)
		_, err = x.Write([]byte{1})
		assert.Equal(t, syscall.EPIPE, err)
		assert.Zero(t, r.p[0].Stats().Registrations)
		assert.NoError(t, x.Close())
		_ = y
	})
}

// The reader waits for the end of a piece that never ends.
func TestRevokeTimeoutOfRead(t *testing.T) {
	inBubble(t, func(t *testing.T, c emu.Config) {
		c.Link = emu.Link{Latency: 10 * time.Millisecond}
		r := newRig(t, c, c, session.Config{})
		ends := r.connect()
		x, y := ends[0], ends[1]
		start := time.Now()
		require.NoError(t, y.SetReadDeadline(start.Add(time.Second)))
		later(t, func() {
			x.SetWriteDeadline(time.Now().Add(time.Hour))
			_, err := x.Write(make([]byte, 1<<20))
			assert.Error(t, err)
		})
		wait := later(t, func() {
			b := make([]byte, 1<<20)
			for {
				if _, err := y.Read(b); err != nil {
					assert.Equal(t, syscall.ETIMEDOUT, err, "the deadline has cost the connection")
					break
				}
			}
			assert.Equal(t, time.Second+session.RevokeTimeout, time.Since(start))
			assert.True(t, session.Over(y))
			assert.NoError(t, y.SetDeadline(time.Time{}))
			_, err := y.Read(b)
			assert.Equal(t, io.EOF, err)
		})
		// The offer has arrived, and the piece is under way.
		time.Sleep(15 * time.Millisecond)
		emu.DropLink(r.eps[1])
		wait()
		assert.Zero(t, r.p[1].Stats().Registrations)
		x.Close()
	})
}

// Close ends whatever is under way.
func TestCloseDuring(t *testing.T) {
	forModes(t, func(t *testing.T, c emu.Config) {
		for name, begin := range map[string]func(x, y *session.Conn) error{
			"read": func(x, y *session.Conn) error {
				_, err := x.Read(make([]byte, 10))
				return err
			},
			"read buffer": func(x, y *session.Conn) error {
				_, err := x.ReadBuffer()
				return err
			},
			"write": func(x, y *session.Conn) error {
				for {
					if _, err := x.Write(make([]byte, 5000)); err != nil {
						return err
					}
				}
			},
			"offer": func(x, y *session.Conn) error {
				for {
					if _, err := x.Write(make([]byte, 3<<20)); err != nil {
						return err
					}
				}
			},
			"transfer": func(x, y *session.Conn) error {
				go func() {
					for {
						if _, err := y.Read(make([]byte, 100_000)); err != nil {
							return
						}
					}
				}()
				for {
					if _, err := x.Write(make([]byte, 1<<20)); err != nil {
						return err
					}
				}
			},
			"receipt": func(x, y *session.Conn) error {
				go func() {
					for {
						if _, err := y.Write(make([]byte, 1<<20)); err != nil {
							return
						}
					}
				}()
				for {
					if _, err := x.Read(make([]byte, 100_000)); err != nil {
						return err
					}
				}
			},
		} {
			t.Run(name, func(t *testing.T) {
				for i := range 5 {
					x, y := pair(t, c, c, session.Config{ReadBuffer: 64 << 10})
					wait := later(t, func() {
						assert.Equal(t, net.ErrClosed, begin(x, y))
					})
					time.Sleep(time.Duration(i) * 300 * time.Microsecond) // any moment will do
					assert.NoError(t, x.Close())
					wait()
					assert.Equal(t, net.ErrClosed, x.Close())
					y.Close()
				}
			})
		}
	})
}

// Calls on a closed connection.
func TestAfterClose(t *testing.T) {
	x, _ := pair(t, emu.Config{}, emu.Config{}, session.Config{})
	require.NoError(t, x.Close())
	_, rerr := x.Read(nil)
	_, werr := x.Write(nil)
	_, berr := x.ReadBuffer()
	_, nerr := x.NewBuffer(1)
	for i, err := range []error{rerr, werr, berr, nerr, x.Close(), x.CloseRead(), x.CloseWrite(), x.SetDeadline(time.Time{}),
		x.SetReadDeadline(time.Time{}), x.SetWriteDeadline(time.Time{}), x.SetReadBuffer(1), x.SetWriteBuffer(1), x.SetLinger(1),
		x.SetKeepAlive(1, 1, 1)} {
		assert.Equal(t, net.ErrClosed, err, "%d", i)
	}
	x.Stats()
}

// The memory of a Write is the caller's as soon as it returns, and so is that of a Read: both overwrite theirs at once.
// Deadlines cut transfers short at any moment.
func TestSlicesAreTheCallers(t *testing.T) {
	forModes(t, func(t *testing.T, c emu.Config) {
		x, y := pair(t, c, c, session.Config{ReadBuffer: 100_000})
		total := uint64(less(20<<20, 4<<20))
		sent, got := uint64(0), uint64(0)
		over := make(chan struct{})
		later(t, func() {
			defer close(over)
			r := rand.New(rand.NewPCG(1, 2))
			b := make([]byte, 600_000)
			for sent < total {
				p := b[:1+r.IntN(1+r.IntN(len(b)))]
				putPattern(p, sent)
				x.SetWriteDeadline(time.Now().Add(time.Duration(r.IntN(2000)) * time.Microsecond))
				n, err := x.Write(p)
				clear(p)
				sent += uint64(n)
				if err != nil && !assert.ErrorIs(t, err, os.ErrDeadlineExceeded) {
					return
				}
			}
			x.CloseWrite()
		})
		r := rand.New(rand.NewPCG(3, 4))
		b := make([]byte, 400_000)
		for {
			p := b[:1+r.IntN(1+r.IntN(len(b)))]
			y.SetReadDeadline(time.Now().Add(time.Duration(r.IntN(1000)) * time.Microsecond))
			n, err := y.Read(p)
			ok := isPattern(p[:n], got)
			got += uint64(n)
			for i := range p {
				p[i] = 0xEE
			}
			require.True(t, ok, "bytes before %d", got)
			if err == io.EOF {
				break
			}
			if err != nil {
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			}
			if r.IntN(8) == 0 {
				// Between two Reads nothing touches the memory.
				time.Sleep(100 * time.Microsecond)
				require.Equal(t, len(p), bytes.Count(p, []byte{0xEE}))
			}
		}
		<-over
		assert.Equal(t, sent, got)
	})
}

// What Close does with data that is not delivered.
func TestLinger(t *testing.T) {
	inBubble(t, func(t *testing.T, c emu.Config) {
		c.Link = emu.Link{Latency: 50 * time.Millisecond, Bandwidth: 1 << 20}
		for _, linger := range []int{-7, -1, 0, 1, 5} {
			x, y := pair(t, c, c, session.Config{})
			require.NoError(t, x.SetLinger(linger))
			n, err := x.Write(pattern(0, 5000))
			require.NoError(t, err)
			require.Equal(t, 5000, n)
			start := time.Now()
			require.NoError(t, x.Close())
			took := time.Since(start)
			got, err := io.ReadAll(y)
			if linger == 0 {
				assert.Equal(t, syscall.ECONNRESET, err)
				assert.Zero(t, took)
				continue
			}
			assert.NoError(t, err, "linger %d", linger)
			assert.True(t, len(got) == 5000 && isPattern(got, 0))
			if linger < 0 {
				assert.Zero(t, took, "in the background")
			} else {
				assert.GreaterOrEqual(t, took, 100*time.Millisecond, "there and back")
				assert.Less(t, took, time.Second)
			}
		}
	})
}

// Nobody answers.
func TestLingerExpires(t *testing.T) {
	inBubble(t, func(t *testing.T, c emu.Config) {
		for _, linger := range []int{-1, 3} {
			r := newRig(t, c, c, session.Config{})
			ends := r.connect()
			x := ends[0]
			require.NoError(t, x.SetLinger(linger))
			emu.DropLink(r.eps[0])
			start := time.Now()
			require.NoError(t, x.Close())
			// Close waits no longer, and the rest goes on in the background.
			assert.Equal(t, time.Duration(max(linger, 0))*time.Second, time.Since(start))
			time.Sleep(session.CloseTimeout - time.Since(start) - time.Nanosecond)
			synctest.Wait()
			assert.False(t, session.Over(x))
			time.Sleep(2 * time.Nanosecond)
			synctest.Wait()
			assert.True(t, session.Over(x))
			assert.Zero(t, r.p[0].Stats().Endpoints)
			assert.Zero(t, r.p[0].Stats().Registrations)
		}
	})
}

// A peer that is there but reads nothing for long gets everything in the end, also of a connection that has closed.
func TestClosedWhileThePeerReadsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, c emu.Config) {
		x, y := pair(t, c, c, session.Config{ReadBuffer: 10_000})
		x.SetWriteDeadline(time.Now().Add(time.Second))
		sent := 0
		for {
			n, err := x.Write(pattern(uint64(sent), 50))
			sent += n
			if err != nil {
				break
			}
		}
		require.NoError(t, x.Close())
		time.Sleep(time.Hour)
		synctest.Wait()
		got, err := io.ReadAll(y)
		assert.NoError(t, err)
		assert.True(t, len(got) == sent && isPattern(got, 0), "%d of %d", len(got), sent)
		synctest.Wait()
		assert.True(t, session.Over(x))
	})
}

// Close does not wait, whether the peer takes what was written or not.
func TestCloseDoesNotWait(t *testing.T) {
	inBubble(t, func(t *testing.T, c emu.Config) {
		for _, waiting := range []bool{false, true} {
			x, _ := pair(t, c, c, session.Config{ReadBuffer: 4096})
			x.SetWriteDeadline(time.Now().Add(time.Second))
			for err := error(nil); err == nil; {
				_, err = x.Write(make([]byte, 50))
			}
			wait := func() {}
			if waiting {
				x.SetWriteDeadline(time.Time{})
				wait = later(t, func() {
					_, err := x.Write(make([]byte, 50))
					assert.Equal(t, net.ErrClosed, err)
				})
				synctest.Wait()
			}
			start := time.Now()
			require.NoError(t, x.Close())
			assert.Zero(t, time.Since(start))
			wait()
		}
	})
}

// CloseRead ends a Read into whose memory the peer is writing.
func TestCloseReadDuringATarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := emu.Config{SameProcess: true, NoRDMARead: true, MaxRDMA: 10_000, Link: emu.Link{Bandwidth: 1 << 20}}
		for _, size := range []int{1 << 20, 100} { // the Read's own memory, and the connection's
			x, y := pair(t, c, c, session.Config{})
			start := time.Now()
			var took time.Duration
			wait := later(t, func() {
				b := make([]byte, size)
				for {
					_, err := y.Read(b)
					if err != nil {
						assert.Equal(t, io.EOF, err)
						break
					}
				}
				took = time.Since(start)
			})
			waitWrite := later(t, func() {
				n, err := x.Write(make([]byte, 2<<20))
				assert.NoError(t, err)
				assert.Equal(t, 2<<20, n)
			})
			time.Sleep(100 * time.Millisecond)
			require.NoError(t, y.CloseRead())
			wait()
			assert.Less(t, took, 120*time.Millisecond, "reading %d bytes", size)
			waitWrite() // is not held up
			x.Close()
			y.Close()
		}
	})
}

func TestKeepAlive(t *testing.T) {
	inBubble(t, func(t *testing.T, c emu.Config) {
		r := newRig(t, c, c, session.Config{})
		ends := r.connect()
		x, y := ends[0], ends[1]
		require.NoError(t, x.SetKeepAlive(10*time.Second, 2*time.Second, 3))
		// A silent peer that answers is alive.
		time.Sleep(time.Hour)
		synctest.Wait()
		_, err := y.Write([]byte{1})
		require.NoError(t, err)
		b := make([]byte, 10)
		_, err = x.Read(b)
		require.NoError(t, err)
		// Changing it begins anew, and 0 ends it.
		require.NoError(t, x.SetKeepAlive(0, 0, 0))
		emu.DropLink(r.eps[0])
		time.Sleep(time.Hour)
		require.NoError(t, x.SetReadDeadline(time.Now().Add(time.Minute)))
		_, err = x.Read(b)
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, x.SetReadDeadline(time.Time{}))

		start := time.Now()
		require.NoError(t, x.SetKeepAlive(10*time.Second, 2*time.Second, 3))
		_, err = x.Read(b)
		assert.Equal(t, syscall.ETIMEDOUT, err)
		assert.Equal(t, 16*time.Second, time.Since(start))
		_, err = x.Read(b)
		assert.Equal(t, io.EOF, err)
		_, err = x.Write(b)
		assert.Equal(t, syscall.EPIPE, err)
		assert.Equal(t, syscall.ENOTCONN, x.CloseWrite())
		time.Sleep(2 * time.Second) // the last message does not leave
		synctest.Wait()
		assert.True(t, session.Over(x))
	})
}

// A link that is cut is noticed in the time that was set, whatever waits.
func TestKeepAliveEndsEverything(t *testing.T) {
	inBubble(t, func(t *testing.T, c emu.Config) {
		for name, call := range map[string]func(x *session.Conn) error{
			"read":        func(x *session.Conn) error { _, err := x.Read(make([]byte, 1)); return err },
			"read buffer": func(x *session.Conn) error { _, err := x.ReadBuffer(); return err },
			"write to":    func(x *session.Conn) error { _, err := x.WriteTo(io.Discard); return err },
			"large write": func(x *session.Conn) error { _, err := x.Write(make([]byte, 20<<20)); return err },
			"small writes": func(x *session.Conn) error {
				for {
					if _, err := x.Write(make([]byte, 100)); err != nil {
						return err
					}
				}
			},
		} {
			r := newRig(t, c, c, session.Config{})
			x := r.connect()[0]
			require.NoError(t, x.SetKeepAlive(10*time.Second, 2*time.Second, 3))
			emu.DropLink(r.eps[0])
			start := time.Now()
			err := call(x)
			assert.ErrorIs(t, err, syscall.ETIMEDOUT, name)
			assert.Equal(t, 16*time.Second, time.Since(start), name)
			x.Close()
		}
	})
}

// Keepalive on a connection that has filled the peer's receive buffers.
func TestKeepAliveWhileStalled(t *testing.T) {
	inBubble(t, func(t *testing.T, c emu.Config) {
		x, y := pair(t, c, c, session.Config{ReadBuffer: 10_000})
		require.NoError(t, x.SetKeepAlive(time.Second, time.Second, 3))
		require.NoError(t, y.SetKeepAlive(time.Second, time.Second, 3))
		later(t, func() {
			_, err := x.Write(make([]byte, 1<<20))
			assert.NoError(t, err)
			x.CloseWrite()
		})
		time.Sleep(time.Hour)
		n, err := io.Copy(io.Discard, y)
		assert.NoError(t, err)
		assert.EqualValues(t, 1<<20, n)
	})
}

// A connection that has grown is small again when it has been silent, and can be used on.
func TestShrinksWhenIdle(t *testing.T) {
	inBubble(t, func(t *testing.T, c emu.Config) {
		c.Buffered = 1 << 20
		for _, size := range []int{1300, 20_000, less(10<<20, 30_000)} {
			x, y := pair(t, c, c, session.Config{Threshold: -1})
			small := y.Stats().ReceiveRegion
			for round := range 2 {
				wait := later(t, func() {
					_, err := x.Write(pattern(0, size))
					assert.NoError(t, err)
				})
				b := make([]byte, size)
				_, err := io.ReadFull(y, b)
				require.NoError(t, err)
				require.True(t, isPattern(b, 0))
				wait()
				synctest.Wait()
				require.Greater(t, y.Stats().ReceiveRegion, small)
				time.Sleep(2*session.ShrinkAfter + time.Second)
				synctest.Wait()
				assert.Equal(t, small, y.Stats().ReceiveRegion, "size %d round %d", size, round)
				assert.Equal(t, small, x.Stats().ReceiveRegion)
				assert.True(t, session.Quiet(x) && session.Quiet(y))
			}
		}
	})
}

// Every step of the provider fails at some time, on many connections: each ends in an error on that connection, or goes
// on, and nothing is left behind.
func TestFaultsLeaveNothing(t *testing.T) {
	steps := []emu.Step{emu.StepAllocate, emu.StepRegister, emu.StepExpose, emu.StepDeregister, emu.StepPostRecv, emu.StepPostSend,
		emu.StepPostWrite, emu.StepPostRead, emu.StepTransfer}
	rounds := 40
	if os.Getenv("SANSOCK_SEEDS") != "" {
		rounds = 1500 // some ten thousand faults
	}
	forModes(t, func(t *testing.T, c emu.Config) {
		var mu sync.Mutex
		n, faults := 0, 0
		r := rand.New(rand.NewPCG(1, 1))
		c.Faults.Hook = func(s emu.Step) error {
			mu.Lock()
			defer mu.Unlock()
			for _, x := range steps {
				if n--; x == s && n <= 0 {
					n = r.IntN(300)
					faults++
					return syscall.EIO
				}
			}
			return nil
		}
		rig := newRig(t, c, c, session.Config{Threshold: 10_000})
		rig.fail = true
		for range rounds {
			ends := rig.connect()
			var wg sync.WaitGroup
			for _, c := range ends {
				if c == nil {
					continue
				}
				c.SetDeadline(time.Now().Add(10 * time.Second))
				wg.Go(func() {
					for i := range 5 {
						if _, err := c.Write(pattern(uint64(i*30_000), 30_000)); err != nil {
							break
						}
					}
					c.CloseWrite()
				})
				wg.Go(func() {
					b := make([]byte, 20_000)
					for pos := uint64(0); ; {
						n, err := c.Read(b)
						if !assert.True(t, isPattern(b[:n], pos)) {
							break
						}
						if pos += uint64(n); err != nil {
							if err == io.EOF && pos != 150_000 {
								// The peer's writing failed: it ended with CloseWrite all the same.
								assert.Less(t, pos, uint64(150_000))
							}
							assert.False(t, errors.Is(err, os.ErrDeadlineExceeded), "hangs")
							break
						}
					}
				})
			}
			wg.Wait()
			for _, c := range ends {
				if c != nil {
					c.Close()
				}
			}
		}
		assert.Eventually(t, func() bool { return rig.p[0].Stats().Endpoints+rig.p[1].Stats().Endpoints == 0 }, 5*time.Second, time.Millisecond)
		for _, p := range rig.p {
			assert.Zero(t, p.Stats().Registrations)
		}
		mu.Lock()
		defer mu.Unlock()
		assert.Greater(t, faults, rounds/4)
	})
}

// Where memory cannot be registered, at either side, large writes go in messages, once and for all of the write.
func TestFallsBackToCopying(t *testing.T) {
	for _, name := range []string{"read", "write"} {
		for who := range 2 {
			t.Run(fmt.Sprint(name, who), func(t *testing.T) {
				cfg := [2]emu.Config{modes[name], modes[name]}
				cfg[who].Faults.Hook = func(s emu.Step) error {
					if s == emu.StepExpose || s == emu.StepRegister {
						return provider.StatusLimit
					}
					return nil
				}
				x, y := pair(t, cfg[0], cfg[1], session.Config{Threshold: 10_000})
				const writes, size = 5, 300_000
				wait := later(t, func() {
					for i := range writes {
						n, err := x.Write(pattern(uint64(i*size), size))
						assert.NoError(t, err)
						assert.Equal(t, size, n)
					}
				})
				b := make([]byte, writes*size)
				_, err := io.ReadFull(y, b)
				require.NoError(t, err)
				assert.True(t, isPattern(b, 0))
				wait()
				sender, receiver := x.Stats().Fallbacks.SendRegistration, y.Stats().Fallbacks.ReceiveRegistration
				if exposes := map[string]int{"read": 0, "write": 1}[name]; exposes != who {
					assert.Zero(t, sender+receiver, "this side registers nothing")
				} else if who == 0 {
					assert.EqualValues(t, writes, sender)
				} else {
					assert.EqualValues(t, writes, receiver)
				}
			})
		}
	}
}

func TestBuffersAreGivenBack(t *testing.T) {
	x, y := pair(t, emu.Config{}, emu.Config{}, session.Config{})
	for range 100 {
		_, err := x.Write([]byte("some"))
		require.NoError(t, err)
		b, err := y.ReadBuffer()
		require.NoError(t, err)
		require.Equal(t, "some", string(b.Bytes()))
		require.Equal(t, 1, session.Lent(y))
		b.Release()
		require.Zero(t, session.Lent(y))
	}
	later(t, func() { x.Write([]byte("more")); x.CloseWrite() })
	var w bytes.Buffer
	n, err := y.WriteTo(&w)
	assert.NoError(t, err)
	assert.EqualValues(t, 4, n)
	assert.Zero(t, session.Lent(y))
}

// Reads and Writes of a connection in use allocate nothing.
func TestNoAllocations(t *testing.T) {
	if session.RaceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, name := range []string{"read", "hardware"} {
		for _, c := range []struct{ size, writes int }{{1, 1}, {100, 1}, {5000, 1}, {100_000, 1}, {50, 400}} {
			t.Run(fmt.Sprintf("%s/%d", name, c.size*c.writes), func(t *testing.T) {
				x, y := pair(t, modes[name], modes[name], session.Config{})
				in, out := make([]byte, c.size*c.writes), make([]byte, c.size)
				ask := make(chan struct{})
				done := make(chan error)
				later(t, func() {
					for range ask {
						var err error
						for range c.writes {
							if _, err = x.Write(out); err != nil {
								break
							}
						}
						done <- err
					}
				})
				once := func() {
					ask <- struct{}{}
					if _, err := io.ReadFull(y, in); err != nil {
						t.Error(err)
					}
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
				for range 200 {
					once()
				}
				// The collector may empty a pool meanwhile, and what others in the process allocate counts too.
				least := testing.AllocsPerRun(200, once)
				for range 9 {
					least = min(least, testing.AllocsPerRun(200, once))
				}
				// What sees to a wake-up that finds nobody waiting is none of a Read or a Write.
				assert.Less(t, least, float64(max(1, c.writes/20)))
				close(ask)
			})
		}
	}
}
