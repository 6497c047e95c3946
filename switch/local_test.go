package sanswitch

import (
	"context"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
)

// What net refuses as a local address is refused with its error, on the SAN's own networks too.
func TestDialFromRefused(t *testing.T) {
	f := newFaulty(t, emu.Config{})
	s := newSwitch(t, Config{HeadStart: patient}, f)
	l := listen(t, s, "tcp", "127.0.0.1:0")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for _, c := range []struct {
		network string
		local   net.Addr
	}{
		{"tcp4", &net.TCPAddr{IP: net.IPv6zero}},
		{"tcp", &net.TCPAddr{IP: net.IPv6loopback}},
		{"tcp", &net.TCPAddr{IP: net.IP{127, 0}}},
		{"tcp", &net.TCPAddr{IP: net.IP{}}},
		{"tcp", &net.TCPAddr{Port: 99999}},
		{"tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: -1}},
		{"tcp", taken.Addr()},
		{"tcp", &net.UDPAddr{}},
	} {
		d := net.Dialer{LocalAddr: c.local}
		_, want := d.DialContext(t.Context(), c.network, l.Addr().String())
		_, err := s.Dial(t.Context(), &d, c.network, l.Addr().String())
		assertSameError(t, want, err)
		oe := opErrorOf(t, want)
		oe.Net, _ = sanNetwork(c.network)
		_, err = s.Dial(t.Context(), &d, oe.Net, l.Addr().String())
		assertSameError(t, oe, err)
	}
}

// A destination without an address is reached at the local one, which net knows how to find.
func TestDialFromToUnspecified(t *testing.T) {
	s := newSwitch(t, Config{HeadStart: patient}, newFaulty(t, emu.Config{}))
	l := listen(t, s, "tcp", "127.0.0.1:0")
	from := func(ip net.IP) (Result, error) {
		d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: ip}}
		return s.Dial(context.Background(), d, "tcp", ":"+portOf(l.Addr()))
	}
	_, err := from(net.IPv4(127, 0, 0, 9))
	assert.ErrorIs(t, err, syscall.ECONNREFUSED)
	r, err := from(net.IPv4(127, 0, 0, 1))
	require.NoError(t, err)
	defer stream(r).Close()
	assertTCP(t, r, ReasonLocalAddr)
	echo(t, r, accept(t, l))
	r, err = from(nil)
	require.NoError(t, err)
	defer stream(r).Close()
	assertSAN(t, r)
	echo(t, r, accept(t, l))
}
