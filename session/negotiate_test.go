package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/provider"
)

// negotiateWith runs Negotiate against a peer that sends one message, or ends the connection (nil), each time there is
// nothing left to do. It returns what the peer heard, too.
func negotiateWith(t *testing.T, a provider.Attributes, side Side, faults func(string) provider.Status, says ...[]byte) (*Conn, *puppet, error) {
	t.Helper()
	p := startPuppet(t, a, Config{})
	p.w.faults = faults
	p.w.ends[0].onArm = func() {
		p.listen()
		if len(says) == 0 {
			return
		}
		b := says[0]
		says = says[1:]
		if b == nil {
			p.ep.Close()
			p.ep.deliver()
		} else if !p.w.ends[0].closed {
			require.True(t, p.raw(b))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := Negotiate(ctx, p.w.ends[0], side, Config{})
	p.w.ends[0].onArm = nil
	if err != nil {
		assert.Nil(t, c)
		assert.True(t, p.w.ends[0].closed, "the endpoint is closed")
		assert.Zero(t, p.w.ends[0].leaks(), "nothing stays registered")
	}
	p.listen()
	requireRules(t, p.w)
	return c, p, err
}

var (
	goodOffer  = helloSeeds[0].append(nil)
	goodAnswer = hello{kind: helloAnswer, minVersion: version, maxVersion: version, receives: 8, size: 256}.append(nil)
	goodReady  = encode(header{kind: kindReady})
)

func TestNegotiate(t *testing.T) {
	for kind := range modelKinds {
		a := modelAttrs(kind)
		c, p, err := negotiateWith(t, a, Dialer, nil, goodAnswer)
		require.NoError(t, err)
		require.Len(t, p.got, 2, "offer and ready")
		h, err := parseHello(p.got[0])
		require.NoError(t, err)
		assert.EqualValues(t, helloOffer, h.kind)
		assert.EqualValues(t, c.core.levels[0].count, h.receives)
		assert.EqualValues(t, minBuffer, h.size)
		assert.Equal(t, a.RDMARead, h.modes&modeReader != 0)
		assert.Equal(t, a.RDMAReadable, h.modes&modeReadable != 0)
		ready, err := parseHeader(p.got[1])
		require.NoError(t, err)
		assert.Equal(t, header{kind: kindReady, credits: 1}, ready, "the answer's buffer is given back")
		assert.Equal(t, 8-1-1, c.core.win.credits, "the offer's answer and ready took two of eight")
		assert.Nil(t, c.core.reader, "the peer has said that it cannot be read")
		assert.False(t, c.core.peerReader)
		c.Close()

		c, p, err = negotiateWith(t, a, Listener, nil, goodOffer, goodReady)
		require.NoError(t, err)
		require.Len(t, p.got, 1, "answer")
		h, err = parseHello(p.got[0])
		require.NoError(t, err)
		assert.EqualValues(t, helloAnswer, h.kind)
		assert.Equal(t, 8-1, c.core.win.credits)
		assert.Equal(t, a.RDMARead, c.core.reader != nil)
		assert.True(t, c.core.peerReader)
		c.Close()
	}
}

func TestNegotiateFails(t *testing.T) {
	change := func(b []byte, at int, v byte) []byte {
		b = append([]byte(nil), b...)
		b[at] = v
		return b
	}
	refuse := func(code uint8) []byte {
		return hello{kind: helloRefuse, minVersion: version, maxVersion: version, refusal: code}.append(nil)
	}
	foreign := hello{kind: helloOffer, minVersion: version + 1, maxVersion: 9}.append(nil)
	// What comes behind a bad message must not be acted on.
	evil := encode(header{kind: kindCredit, credits: 5})
	for _, c := range []struct {
		name    string
		side    Side
		says    [][]byte
		want    error
		refusal uint8 // that the peer hears
	}{
		{"empty", Listener, [][]byte{{}}, ErrProtocol, 0},
		{"not a hello", Listener, [][]byte{[]byte("GET / HTTP/1.0\r\n\r\n")}, ErrProtocol, 0},
		{"a message", Listener, [][]byte{goodReady}, ErrProtocol, 0},
		{"cut short", Listener, [][]byte{goodOffer[:len(goodOffer)-1]}, ErrProtocol, 0},
		{"answer to the listener", Listener, [][]byte{goodAnswer}, ErrProtocol, 0},
		{"refusal to the listener", Listener, [][]byte{refuse(1)}, ErrProtocol, 0},
		{"newer version", Listener, [][]byte{foreign}, ErrVersion, RefusedVersion},
		{"gone at once", Listener, [][]byte{nil}, provider.StatusDisconnected, 0},
		{"gone after the offer", Listener, [][]byte{goodOffer, nil}, provider.StatusDisconnected, 0},
		{"data instead of ready", Listener, [][]byte{goodOffer, encode(header{kind: kindData}, []byte("x"))}, ErrProtocol, 0},
		{"ready with payload", Listener, [][]byte{goodOffer, encode(header{kind: kindReady}, []byte("x"))}, ErrProtocol, 0},
		{"second offer", Listener, [][]byte{goodOffer, goodOffer}, ErrProtocol, 0},
		{"ready with too many credits", Listener, [][]byte{
			hello{kind: helloOffer, minVersion: version, maxVersion: version, receives: 65535, size: 256}.append(nil),
			encode(header{kind: kindReady, credits: 65535})}, ErrProtocol, 0},
		{"message after no hello", Listener, [][]byte{[]byte("no hello"), evil}, ErrProtocol, 0},

		{"empty", Dialer, [][]byte{{}}, ErrProtocol, 0},
		{"offer to the dialer", Dialer, [][]byte{goodOffer}, ErrProtocol, 0},
		{"cut short", Dialer, [][]byte{goodAnswer[:len(goodAnswer)-1]}, ErrProtocol, 0},
		{"newer version", Dialer, [][]byte{change(foreign, 4, helloAnswer)}, ErrVersion, 0},
		{"refused", Dialer, [][]byte{refuse(RefusedBusy)}, &RefusedError{RefusedBusy}, 0},
		{"refused, newer version", Dialer, [][]byte{change(change(refuse(RefusedVersion), 5, 3), 6, 3)}, &RefusedError{RefusedVersion}, 0},
		{"refused, unknown code", Dialer, [][]byte{refuse(99)}, &RefusedError{99}, 0},
		{"gone", Dialer, [][]byte{nil}, provider.StatusDisconnected, 0},
		{"message after no hello", Dialer, [][]byte{[]byte("no hello"), evil}, ErrProtocol, 0},
	} {
		for _, kind := range []int{0, 2} { // messages leave inline, or from a region, where Close would cut them short
			t.Run(fmt.Sprintf("%v/%s/%d", c.side, c.name, kind), func(t *testing.T) {
				_, p, err := negotiateWith(t, modelAttrs(kind), c.side, nil, c.says...)
				var refused *RefusedError
				if errors.As(c.want, &refused) {
					assert.Equal(t, c.want, err)
				} else {
					assert.ErrorIs(t, err, c.want)
				}
				var heard uint8
				for _, b := range p.got {
					if h, err := parseHello(b); err == nil && h.kind == helloRefuse {
						heard = h.refusal
					}
				}
				assert.Equal(t, c.refusal, heard, "refusal at the peer")
			})
		}
	}
}

// Messages that the peer sent together with a bad hello wait in the endpoint when the negotiation has failed.
func TestNegotiateDropsTheRest(t *testing.T) {
	for _, side := range []Side{Dialer, Listener} {
		for _, evil := range []header{{kind: kindCredit, credits: 5}, {kind: kindResize, credits: 8, arg: 256 | 9<<32}, {kind: kindPing}} {
			p := startPuppet(t, fakeAttr(), Config{})
			p.w.ends[0].onArm = func() {
				p.raw([]byte("no hello"))
				p.raw(encode(evil))
			}
			_, err := Negotiate(context.Background(), p.w.ends[0], side, Config{})
			assert.ErrorIs(t, err, ErrProtocol)
			assert.Zero(t, p.w.ends[0].leaks())
		}
	}
}

// nth makes the n-th step of a kind fail.
func nth(step string, n int, s provider.Status) func(string) provider.Status {
	return func(at string) provider.Status {
		if at == step {
			if n--; n == 0 {
				return s
			}
		}
		return provider.StatusOK
	}
}

func TestNegotiateProviderFails(t *testing.T) {
	hardware := modelAttrs(2) // has a region for sends, too
	says := map[Side][][]byte{Dialer: {goodAnswer}, Listener: {goodOffer, goodReady}}
	for _, side := range []Side{Dialer, Listener} {
		for _, s := range []provider.Status{provider.StatusNoMemory, provider.StatusLimit} {
			for n := 1; n <= 2; n++ {
				_, p, err := negotiateWith(t, hardware, side, nth("allocate", n, s), says[side]...)
				assert.ErrorIs(t, err, ErrMemory)
				assert.ErrorIs(t, err, s)
				assert.Empty(t, p.got, "without a region nothing can be sent")
			}
			_, p, err := negotiateWith(t, fakeAttr(), side, nth("allocate", 1, s), says[side]...)
			assert.ErrorIs(t, err, ErrMemory)
			if side == Listener {
				require.Len(t, p.got, 1)
				h, err := parseHello(p.got[0])
				require.NoError(t, err)
				assert.Equal(t, hello{kind: helloRefuse, minVersion: version, maxVersion: version, refusal: RefusedMemory}, h)
			}
		}
		for _, a := range []provider.Attributes{fakeAttr(), hardware} {
			for n := 1; n <= idleReceives+side2(side); n++ {
				_, _, err := negotiateWith(t, a, side, nth("post-recv", n, provider.StatusLink), says[side]...)
				assert.ErrorIs(t, err, provider.StatusLink, "%v receive %d", side, n)
			}
			_, _, err := negotiateWith(t, a, side, nth("post-send", 1, provider.StatusLink), says[side]...)
			assert.ErrorIs(t, err, provider.StatusLink)
		}
	}
	_, _, err := negotiateWith(t, fakeAttr(), Dialer, nth("post-send", 2, provider.StatusLink), goodAnswer)
	assert.ErrorIs(t, err, provider.StatusLink, "ready could not be sent")
}

// side2 is how many receives an end posts again during its negotiation.
func side2(s Side) int { return map[Side]int{Dialer: 1, Listener: 2}[s] }

// A provider whose limits no session can keep to is not used.
func TestNegotiateLimits(t *testing.T) {
	for _, c := range []struct {
		name                    string
		inline, sends, receives int
		want                    error
	}{
		{"one send", 0, 1, 64, ErrProvider},
		{"one send, and hellos do not fit inline", minBuffer - 1, 1, 64, ErrProvider},
		{"one send, beside inline ones", minBuffer, 1, 64, nil},
		{"two sends", 0, 2, 64, nil},
		{"few receives", minBuffer, 64, minReceives - 1, ErrProvider},
		{"receives enough", minBuffer, 64, minReceives, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := fakeAttr()
			a.MaxInline, a.MaxSends, a.MaxRecvs = c.inline, c.sends, c.receives
			conn, p, err := negotiateWith(t, a, Dialer, nil, goodAnswer)
			require.ErrorIs(t, err, c.want)
			if c.want != nil {
				return
			}
			// A Write has what it takes.
			n, err := conn.Write([]byte("leaves at once"))
			assert.NoError(t, err)
			assert.Equal(t, 14, n)
			p.listen()
			conn.SetLinger(0)
			assert.NoError(t, conn.Close())
		})
	}
}

// A provider of one transfer at a time is not asked for an RDMA read beside an RDMA write.
func TestNegotiateOneRDMA(t *testing.T) {
	for most, want := range map[int]uint8{1: modeReadable, 2: modeReader | modeReadable} {
		a := fakeAttr()
		a.MaxRDMAs = most
		conn, p, err := negotiateWith(t, a, Dialer, nil, goodAnswer)
		require.NoError(t, err)
		h, err := parseHello(p.got[0])
		require.NoError(t, err)
		assert.Equal(t, want, h.modes)
		conn.SetLinger(0)
		assert.NoError(t, conn.Close())
	}
}

// A refusal that does not leave delays the end for a second, and not longer.
func TestRefusalThatDoesNotLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPuppet(t, modelAttrs(2), Config{})
		start := time.Now()
		failed := make(chan error)
		go func() {
			_, err := Negotiate(context.Background(), p.w.ends[0], Listener, Config{})
			failed <- err
		}()
		synctest.Wait()
		require.True(t, p.raw(hello{kind: helloOffer, minVersion: version + 1, maxVersion: 9}.append(nil)))
		assert.ErrorIs(t, <-failed, ErrVersion)
		assert.Equal(t, sendTimeout, time.Since(start))
	})
}

func TestNegotiateTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		p := startPuppet(t, fakeAttr(), Config{})
		_, err := Negotiate(context.Background(), p.w.ends[0], Listener, Config{})
		assert.Equal(t, ErrTimeout, err)
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.Equal(t, DefaultTimeout, time.Since(start))

		p = startPuppet(t, fakeAttr(), Config{})
		_, err = Negotiate(context.Background(), p.w.ends[0], Dialer, Config{Timeout: time.Hour})
		assert.Equal(t, ErrTimeout, err)
		assert.Equal(t, DefaultTimeout+time.Hour, time.Since(start))
		assert.Zero(t, p.w.ends[0].leaks())

		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(time.Second, func() { cancel(why) })
		p = startPuppet(t, fakeAttr(), Config{})
		_, err = Negotiate(ctx, p.w.ends[0], Dialer, Config{})
		assert.Equal(t, why, err)

		_, err = Negotiate(ctx, startPuppet(t, fakeAttr(), Config{}).w.ends[0], Dialer, Config{})
		assert.Equal(t, why, err, "a context that is over already")
	})
}
