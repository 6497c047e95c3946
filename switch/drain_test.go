package sanswitch

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/provider"
)

// plainTCP is a listener for TCP with no more methods than it has to have.
type plainTCP struct{ net.Listener }

// Drain ends also where the TCP listener cannot be woken by a deadline.
func TestDrainAdoptedWithoutDeadline(t *testing.T) {
	s := newSwitch(t, Config{}, newFaulty(t, emu.Config{}))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := s.Adopt(plainTCP{ln})
	defer l.Close()
	r := dial(t, s, "san", l.Addr().String())
	require.NoError(t, l.Drain())
	echo(t, r, accept(t, l))
	_, err = l.Accept()
	assert.ErrorIs(t, err, net.ErrClosed)
}

// lastRequest is a SAN listener whose Close ends the last connection that is being set up: the one that a drained listener
// waits for to close itself.
type lastRequest struct {
	provider.Listener
	settle func()
}

func (r lastRequest) Close() error {
	r.settle()
	return r.Listener.Close()
}

// Closing a drained listener does not wait for itself.
func TestCloseWhileDrained(t *testing.T) {
	f := newFaulty(t, emu.Config{})
	s := newSwitch(t, Config{}, f)
	san, err := f.Listen(netip.MustParseAddrPort("127.0.0.1:0"), 1)
	require.NoError(t, err)
	var l *Listener
	l = s.newListener("san", "tcp", nil, net.TCPAddrFromAddrPort(san.Addr()), []sanListener{{Listener: lastRequest{san, func() {
		l.shutIfDrained()
	}}}}, Route{})
	l.drained.Store(true)
	closed := make(chan error, 1)
	go func() { closed <- l.Close() }()
	select {
	case err := <-closed:
		assert.NoError(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("Close waits for itself")
	}
}

// The peer of a connection that has lost a race sees its end, and no error.
func TestLostRaceEndsCleanly(t *testing.T) {
	s := newSwitch(t, Config{}, newFaulty(t, emu.Config{}))
	l := listen(t, s, "tcp", "127.0.0.1:0")
	for _, network := range []string{"san", "tcp"} {
		var r Result
		if network == "san" {
			r = dial(t, s, network, l.Addr().String())
		} else {
			c, err := net.Dial(network, l.Addr().String())
			require.NoError(t, err)
			r = Result{Conn: c}
		}
		peer := accept(t, l)
		r.drop()
		_, err := stream(peer).Read(make([]byte, 1))
		assert.Equal(t, io.EOF, err, network)
	}
}
