package sannet_test

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/provider"
	"sansock/sannet"
	sanswitch "sansock/switch"
)

type (
	listenFunc func(network, address string) (net.Listener, error)
	dialFunc   func(network, address string) (net.Conn, error)
)

// talk listens, dials, and sends something there and back, and returns the path.
func talk(t *testing.T, listen listenFunc, dial dialFunc) string {
	t.Helper()
	l, err := listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	c, err := dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	sv, err := l.Accept()
	require.NoError(t, err)
	defer sv.Close()
	echoOnce(t, c, sv)
	info, _ := sannet.InfoOf(c)
	return info.String()
}

func echoOnce(t *testing.T, c, sv net.Conn) {
	t.Helper()
	for _, ends := range [][2]net.Conn{{c, sv}, {sv, c}} {
		_, err := ends[0].Write([]byte("hello"))
		require.NoError(t, err)
		var b [5]byte
		_, err = io.ReadFull(ends[1], b[:])
		require.NoError(t, err)
		require.Equal(t, "hello", string(b[:]))
	}
}

// inBubble has a test run once more in a process of its own, where nothing has been used yet.
// What goes wrong with bubbles ends that process.
func inBubble(t *testing.T, f func(t *testing.T)) {
	const env = "SANNET_TEST_BUBBLE"
	if os.Getenv(env) != "" {
		f(t)
		return
	}
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), env+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: "+t.Name())
}

const bubblePath = "tcp: no SAN in use (a testing/synctest bubble has no SAN but one of its own)"

// The process's own SAN is neither made nor used in a bubble: Dial and Listen do there what net
// does, and outside what they always do.
func TestBubbleFirst(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for range 2 {
			synctest.Test(t, func(t *testing.T) { talk(t, net.Listen, net.Dial) }) // it can be done
			synctest.Test(t, func(t *testing.T) {
				assert.Equal(t, bubblePath, talk(t, sannet.Listen, sannet.Dial))
				_, err := sannet.Dial("san", "127.0.0.1:1")
				assert.EqualError(t, err, "dial san: no SAN in use (a testing/synctest bubble has no SAN but one of its own)")
			})
			assert.Equal(t, "san via emu", talk(t, sannet.Listen, sannet.Dial))
		}
	})
}

// Who is inside reaches who is outside, and the other way round.
func TestBubbleBorder(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		outside, err := sannet.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer outside.Close()
		synctest.Test(t, func(t *testing.T) {
			c, err := sannet.Dial("tcp", outside.Addr().String())
			require.NoError(t, err)
			defer c.Close()
			sv, err := outside.Accept()
			require.NoError(t, err)
			defer sv.Close()
			echoOnce(t, c, sv)
		})
		// Accept inside, of what is dialed over the SAN outside.
		dialed := make(chan net.Conn)
		go func() {
			for range 20 {
				c, err := sannet.Dial("tcp", outside.Addr().String())
				assert.NoError(t, err)
				dialed <- c
			}
		}()
		for range 20 {
			c := <-dialed
			var sv net.Conn
			synctest.Test(t, func(t *testing.T) { sv, err = outside.Accept() })
			require.NoError(t, err)
			assert.IsType(t, (*sannet.Conn)(nil), sv)
			echoOnce(t, c, sv)
			c.Close()
			sv.Close()
		}
		require.NoError(t, outside.(*sannet.Listener).SetDeadline(time.Now().Add(time.Millisecond)))
		_, err = outside.Accept()
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	})
}

// newBubbleSwitch returns a switch with a SAN of its own.
func newBubbleSwitch(t *testing.T) *sanswitch.Switch {
	p, err := emu.New(emu.Config{Fabric: emu.NewFabric()})
	require.NoError(t, err)
	return sanswitch.New(sanswitch.Config{Providers: []provider.Provider{p}})
}

// A SAN that a test makes in its bubble works there, in the time of the bubble, and leaves
// nothing behind. Elsewhere it is not used.
func TestBubbleOwnSAN(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		on := func(sw *sanswitch.Switch) (listenFunc, dialFunc) {
			dial := dialWith(sw)
			return listenWith(sw), func(network, address string) (net.Conn, error) {
				return dial(context.Background(), sannet.Dialer{}, network, address)
			}
		}
		const elsewhere = "tcp: no SAN in use (a SAN is used only inside, or outside, of one testing/synctest bubble)"
		var inside *sanswitch.Switch
		outside := newBubbleSwitch(t)
		defer outside.Close()
		for range 2 {
			synctest.Test(t, func(t *testing.T) {
				inside = newBubbleSwitch(t)
				listen, dial := on(inside)
				assert.Equal(t, "san via emu", talk(t, listen, dial))
				l, err := listen("san", "127.0.0.1:0") // time stands still while a socket listens
				require.NoError(t, err)
				began := time.Now()
				require.NoError(t, l.(*sannet.Listener).SetDeadline(began.Add(time.Hour)))
				_, err = l.Accept()
				assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
				assert.Equal(t, time.Hour, time.Since(began))
				require.NoError(t, l.Close())

				listen, dial = on(outside)
				assert.Equal(t, elsewhere, talk(t, listen, dial))
			})
			listen, dial := on(inside)
			assert.Equal(t, elsewhere, talk(t, listen, dial))
			listen, dial = on(outside)
			assert.Equal(t, "san via emu", talk(t, listen, dial))
		}
	})
}

// What a bubble has forgotten is not closed from outside of it.
func TestBubbleForgets(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for range 3 {
			synctest.Test(t, func(t *testing.T) {
				sw := newBubbleSwitch(t)
				l, err := listenWith(sw)("tcp", "127.0.0.1:0")
				require.NoError(t, err)
				c, err := dialWith(sw)(t.Context(), sannet.Dialer{}, "tcp", l.Addr().String())
				require.NoError(t, err)
				_, err = l.Accept()
				require.NoError(t, err)
				assert.IsType(t, (*sannet.Conn)(nil), c)
				l.Close()
			})
			for range 3 {
				runtime.GC()
				time.Sleep(10 * time.Millisecond) // nothing tells when the runtime has cleaned up
			}
		}
	})
}
