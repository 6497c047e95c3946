package session_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/session"
)

// resume goes on with end i of a session of r's.
func (r *rig) resume(i int, state []byte) (*session.Conn, error) {
	r.t.Helper()
	st, err := session.ParseState(state)
	require.NoError(r.t, err)
	ep, err := r.p[i].Dial(context.Background(), netip.AddrPort{}, st.Addr())
	if err != nil {
		return nil, err
	}
	c, err := session.Resume(context.Background(), ep, st, r.config(i))
	if err == nil {
		r.t.Cleanup(func() { c.Close() })
	}
	return c, err
}

// wrongToken returns a state that differs from state in the last byte of its token.
func wrongToken(t *testing.T, state []byte) []byte {
	st, err := session.ParseState(state)
	require.NoError(t, err)
	st.Token[len(st.Token)-1] ^= 1
	return st.Encode()
}

// move hands end i over to itself.
func (r *rig) move(ends *[2]*session.Conn, i int) {
	r.t.Helper()
	state, err := ends[i].Handover(context.Background())
	require.NoError(r.t, err)
	ends[i], err = r.resume(i, state)
	require.NoError(r.t, err)
}

// Either end goes on elsewhere, several times, with unread data both ways; addresses and positions stay.
func TestHandover(t *testing.T) {
	for name, cfg := range modes {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, cfg, cfg, session.Config{})
			ends := r.connect()
			local, remote := ends[0].LocalAddr(), ends[0].RemoteAddr()
			var sent, got [2]bytes.Buffer // by the end that reads
			rnd := rand.New(rand.NewPCG(1, 2))
			for round := range 8 {
				for i, c := range ends {
					p := make([]byte, rnd.IntN(3000))
					rand.NewChaCha8([32]byte{byte(i), byte(round)}).Read(p)
					n, err := c.Write(p)
					require.NoError(t, err)
					sent[1-i].Write(p[:n])
				}
				buf := make([]byte, 1+rnd.IntN(2000))
				for i, c := range ends {
					if sent[i].Len() > got[i].Len() {
						n, err := c.Read(buf)
						require.NoError(t, err)
						got[i].Write(buf[:n])
					}
				}
				require.NoError(t, ends[0].WriteUrgent(context.Background(), []byte{byte(round)}))
				r.move(&ends, round/2%2)
				m, err := ends[1].ReadUrgent(context.Background())
				require.NoError(t, err)
				require.Equal(t, []byte{byte(round)}, m.Data)
				require.EqualValues(t, sent[1].Len()-got[1].Len(), m.Ahead)
			}
			for i, c := range ends {
				require.NoError(t, c.CloseWrite())
				rest, err := io.ReadAll(ends[1-i])
				require.NoError(t, err)
				got[1-i].Write(rest)
			}
			for i := range sent {
				require.True(t, bytes.Equal(sent[i].Bytes(), got[i].Bytes()), "stream to end %d", i)
			}
			assert.Equal(t, local, ends[0].LocalAddr())
			assert.Equal(t, remote, ends[0].RemoteAddr())
			for _, c := range ends {
				require.NoError(t, c.Close())
			}
		})
	}
}

// The peer streams both ways while this end goes from one Conn to the next.
func TestHandoverUnderLoad(t *testing.T) {
	for name, cfg := range modes {
		for end := range 2 {
			t.Run(name, func(t *testing.T) {
				r := newRig(t, cfg, cfg, session.Config{ReadBuffer: 64 << 10})
				ends := r.connect()
				stays := ends[1-end]
				total := 4 << 20
				if session.RaceEnabled {
					total /= 4
				}
				data := make([]byte, total)
				rand.NewChaCha8([32]byte{9}).Read(data)
				done := make(chan error, 2)
				go func() { // writes of all sizes
					for p, n := data, 1; len(p) > 0; n = n*7%100_003 + 1 {
						m, err := stays.Write(p[:min(n, len(p))])
						if p = p[m:]; err != nil {
							done <- err
							return
						}
					}
					done <- stays.CloseWrite()
				}()
				back := make(chan []byte, 1)
				go func() {
					b, err := io.ReadAll(stays)
					back <- b
					done <- err
				}()
				c := ends[end]
				var got []byte
				written := 0
				buf := make([]byte, 50_000)
				for moves := 0; ; {
					n, err := c.Read(buf)
					got = append(got, buf[:n]...)
					if err == io.EOF {
						break
					}
					require.NoError(t, err)
					m := min(1+n, len(data)-written)
					n, err = c.Write(data[written : written+m])
					require.NoError(t, err)
					written += n
					if len(got) > (moves+1)*total/10 {
						moves++
						state, err := c.Handover(context.Background())
						require.NoError(t, err)
						c, err = r.resume(end, state)
						require.NoError(t, err)
					}
				}
				require.NoError(t, c.CloseWrite())
				require.True(t, bytes.Equal(data, got))
				require.True(t, bytes.Equal(data[:written], <-back))
				require.NoError(t, <-done)
				require.NoError(t, <-done)
			})
		}
	}
}

// Reads and Writes that wait at the end that leaves end; those at the other go on.
func TestHandoverWakes(t *testing.T) {
	r := newRig(t, emu.Config{}, emu.Config{}, session.Config{ReadBuffer: 8 << 10})
	ends := r.connect()
	type result struct {
		n   int
		err error
	}
	big := make([]byte, 1<<20)
	wrote, read, urgent := make(chan result, 2), make(chan result, 1), make(chan error, 1)
	write := func(c *session.Conn) { n, err := c.Write(big); wrote <- result{n, err} }
	go write(ends[0])
	go func() { n, err := ends[0].Read(make([]byte, 1)); read <- result{n, err} }()
	go func() { _, err := ends[0].ReadUrgent(context.Background()); urgent <- err }()
	one := make([]byte, 1)
	_, err := ends[1].Read(one) // the Write is under way
	require.NoError(t, err)
	state, err := ends[0].Handover(context.Background())
	require.NoError(t, err)
	cut := <-wrote
	assert.Equal(t, net.ErrClosed, cut.err)
	assert.Equal(t, result{0, net.ErrClosed}, <-read)
	assert.Equal(t, net.ErrClosed, <-urgent)
	assert.Equal(t, net.ErrClosed, ends[0].Close())
	_, err = ends[0].Handover(context.Background())
	assert.Equal(t, net.ErrClosed, err)

	c, err := r.resume(0, state)
	require.NoError(t, err)
	require.NoError(t, c.CloseWrite())
	rest, err := io.ReadAll(ends[1])
	require.NoError(t, err)
	assert.Equal(t, cut.n, 1+len(rest), "exactly what the Write has counted arrives")

	// The peer's Write, which has to wait, and then its Read.
	go write(ends[1])
	_, err = io.ReadFull(c, big[:100])
	require.NoError(t, err)
	state, err = c.Handover(context.Background())
	require.NoError(t, err)
	c, err = r.resume(0, state)
	require.NoError(t, err)
	_, err = io.ReadFull(c, big[100:])
	require.NoError(t, err)
	assert.Equal(t, result{len(big), nil}, <-wrote)
}

// Buffers that the application keeps outlive the endpoints that they are from.
func TestHandoverKeepsBuffers(t *testing.T) {
	r := newRig(t, emu.Config{}, emu.Config{}, session.Config{})
	ends := r.connect()
	var kept []*session.Buffer
	for i := range 4 {
		for j := range 2 {
			_, err := ends[1-j].Write([]byte{'a' + byte(i), 'x'})
			require.NoError(t, err)
			b, err := ends[j].ReadBuffer()
			require.NoError(t, err)
			kept = append(kept, b)
			made, err := ends[j].NewBuffer(100)
			require.NoError(t, err)
			copy(made.Bytes(), "made before")
			r.move(&ends, i%2)
			if j == i%2 {
				made.Release()
				continue
			}
			_, err = ends[j].WriteBuffer(made, 11)
			require.NoError(t, err)
			got := make([]byte, 11)
			_, err = io.ReadFull(ends[1-j], got)
			require.NoError(t, err)
			require.Equal(t, "made before", string(got))
		}
	}
	for i, b := range kept {
		assert.Equal(t, []byte{'a' + byte(i/2), 'x'}, b.Bytes())
		b.Release()
	}
}

// The end that stays may close meanwhile, half or wholly: the new end finds out.
func TestHandoverMeanwhileClosed(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(c *session.Conn)
		want func(t *testing.T, n *session.Conn, err error)
	}{
		"half": {
			func(c *session.Conn) { c.Write([]byte("bye")); c.CloseWrite() },
			func(t *testing.T, n *session.Conn, err error) {
				require.NoError(t, err)
				b, err := io.ReadAll(n)
				require.NoError(t, err)
				assert.Equal(t, "", string(b))
			},
		},
		"wholly": {
			func(c *session.Conn) { c.Close() },
			func(t *testing.T, n *session.Conn, err error) {
				require.NoError(t, err)
				_, err = n.Read(make([]byte, 1))
				assert.Equal(t, io.EOF, err)
			},
		},
		"drop": {
			func(c *session.Conn) { c.SetLinger(0); c.Close() },
			func(t *testing.T, n *session.Conn, err error) { require.Error(t, err) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, emu.Config{}, emu.Config{}, session.Config{})
			ends := r.connect()
			state, err := ends[0].Handover(context.Background())
			require.NoError(t, err)
			if name == "half" {
				require.NoError(t, ends[1].CloseWrite())
			} else {
				c.do(ends[1])
			}
			n, err := r.resume(0, state)
			c.want(t, n, err)
		})
	}
}

// What the new end cannot go on with: another's token, the same again, and nobody comes at all.
func TestHandoverFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, emu.Config{}, emu.Config{}, session.Config{})
		ctx := context.Background()
		ends := r.connect()
		state, err := ends[0].Handover(ctx)
		require.NoError(t, err)
		wrong := wrongToken(t, state)
		_, err = r.resume(0, wrong)
		var refused *session.RefusedError
		require.ErrorAs(t, err, &refused)
		assert.EqualValues(t, session.RefusedToken, refused.Code)
		start := time.Now()
		_, err = ends[1].Read(make([]byte, 1))
		assert.Equal(t, syscall.ECONNRESET, err)
		assert.LessOrEqual(t, time.Since(start), session.DefaultResumeTimeout)
		assert.GreaterOrEqual(t, time.Since(start), session.DefaultResumeTimeout/2)
		_, err = ends[1].Write([]byte{1})
		assert.Equal(t, syscall.EPIPE, err)
		_, err = r.resume(0, state)
		assert.Error(t, err, "too late")

		ends = r.connect()
		state, err = ends[0].Handover(ctx)
		require.NoError(t, err)
		_, err = r.resume(0, wrong[:])
		require.Error(t, err)
		c, err := r.resume(0, state)
		require.NoError(t, err, "another's mistake harms nobody")
		_, err = r.resume(0, state)
		assert.Error(t, err, "once")
		_, err = c.Write([]byte("on"))
		require.NoError(t, err)
		_, err = io.ReadFull(ends[1], make([]byte, 2))
		require.NoError(t, err)

		// An ordinary dial of that address is declined.
		state, err = c.Handover(ctx)
		require.NoError(t, err)
		st, err := session.ParseState(state)
		require.NoError(t, err)
		ep, err := r.p[0].Dial(ctx, netip.AddrPort{}, st.Addr())
		require.NoError(t, err)
		_, err = session.Negotiate(ctx, ep, session.Dialer, r.config(0))
		require.ErrorAs(t, err, &refused)
		c, err = r.resume(0, state)
		require.NoError(t, err)

		// Nobody comes: keep-alive does not find out before.
		require.NoError(t, ends[1].SetKeepAlive(time.Second, time.Second, 2))
		_, err = c.Handover(ctx)
		require.NoError(t, err)
		start = time.Now()
		_, err = ends[1].Read(make([]byte, 1))
		assert.Equal(t, syscall.ECONNRESET, err)
		assert.Equal(t, session.DefaultResumeTimeout, time.Since(start).Round(time.Second))
	})
}

// Strangers at the address of a suspended session cannot end it, nor keep the right one out: not by trying tokens, and not by
// saying nothing.
func TestHandoverStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, emu.Config{}, emu.Config{}, session.Config{})
		ctx := context.Background()
		ends := r.connect()
		state, err := ends[0].Handover(ctx)
		require.NoError(t, err)
		st, err := session.ParseState(state)
		require.NoError(t, err)
		wrong := wrongToken(t, state)
		for range 100 {
			_, err = r.resume(0, wrong)
			var refused *session.RefusedError
			require.ErrorAs(t, err, &refused)
		}
		for range 100 {
			ep, err := r.p[0].Dial(ctx, netip.AddrPort{}, st.Addr())
			require.NoError(t, err)
			defer ep.Close()
			synctest.Wait()
		}
		start := time.Now()
		ends[0], err = r.resume(0, state)
		require.NoError(t, err)
		assert.Zero(t, time.Since(start))
		_, err = ends[0].Write([]byte("on"))
		require.NoError(t, err)
		_, err = io.ReadFull(ends[1], make([]byte, 2))
		require.NoError(t, err)
	})
}

// A hand-over that is called off, or cannot be, leaves the connection as it was.
func TestHandoverCalledOff(t *testing.T) {
	r := newRig(t, emu.Config{}, emu.Config{}, session.Config{})
	ends := r.connect()
	check := func() {
		t.Helper()
		for i, c := range ends {
			_, err := c.Write([]byte("still"))
			require.NoError(t, err)
			b := make([]byte, 5)
			_, err = io.ReadFull(ends[1-i], b)
			require.NoError(t, err)
			require.Equal(t, "still", string(b))
		}
	}
	cause := errors.New("changed my mind")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	for range 10 {
		_, err := ends[0].Handover(ctx)
		assert.Equal(t, cause, err)
		check()
	}
	for i := range 2 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*50*time.Microsecond)
		state, err := ends[i].Handover(ctx)
		cancel()
		if err == nil {
			ends[i], err = r.resume(i, state)
			require.NoError(t, err)
		}
		check()
	}
	r.move(&ends, 1)
	check()

	// An end that has no address to wait at.
	r.p[1].Close()
	_, err := ends[0].Handover(context.Background())
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	check()

	// A version, or a use, without.
	r = newRig(t, emu.Config{}, emu.Config{}, session.Config{})
	r.bare = true
	ends = r.connect()
	_, err = ends[0].Handover(context.Background())
	assert.Equal(t, session.ErrNoHandover, err)
	check()

	require.NoError(t, ends[1].SetLinger(0))
	require.NoError(t, ends[1].Close())
	_, err = ends[0].Read(make([]byte, 1))
	require.Equal(t, syscall.ECONNRESET, err)
}

// Both ends at once: one of them wins, or neither, and nothing is lost.
func TestHandoverBoth(t *testing.T) {
	r := newRig(t, emu.Config{}, emu.Config{}, session.Config{})
	ends := r.connect()
	won := [2]int{}
	for range 30 {
		var states [2][]byte
		var errs [2]error
		done := make(chan int)
		for i, c := range ends {
			go func() {
				states[i], errs[i] = c.Handover(context.Background())
				done <- i
			}()
		}
		<-done
		<-done
		require.True(t, errs[0] != nil || errs[1] != nil, "not both")
		for i := range ends {
			if errs[i] == nil {
				won[i]++
				var err error
				ends[i], err = r.resume(i, states[i])
				require.NoError(t, err)
			}
		}
		for i, c := range ends {
			_, err := c.Write([]byte{1})
			require.NoError(t, err)
			_, err = ends[1-i].Read(make([]byte, 1))
			require.NoError(t, err)
		}
	}
	assert.Equal(t, 30, won[0]+won[1], "%v", won)
}

// The link is lost, silently or not, while the peer has not answered.
func TestHandoverMeanwhileLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, emu.Config{}, emu.Config{}, session.Config{})
		ends := r.connect()
		require.True(t, emu.DropLink(r.eps[0]))
		start := time.Now()
		_, err := ends[0].Handover(context.Background())
		assert.Equal(t, context.DeadlineExceeded, err)
		assert.Equal(t, 10*time.Second, time.Since(start))

		failed := make(chan error)
		go func() { _, err := ends[0].Handover(context.Background()); failed <- err }()
		synctest.Wait()
		start = time.Now()
		require.True(t, emu.CutLink(r.eps[0]))
		assert.Equal(t, syscall.ECONNRESET, <-failed)
		assert.Zero(t, time.Since(start))

		ends = r.connect()
		require.True(t, emu.DropLink(r.eps[0]))
		go func() { _, err := ends[0].Handover(context.Background()); failed <- err }()
		synctest.Wait()
		require.NoError(t, ends[0].Close())
		assert.Equal(t, net.ErrClosed, <-failed)
	})
}
