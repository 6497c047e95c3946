package sanswitch

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
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
