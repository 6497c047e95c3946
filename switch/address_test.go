package sanswitch

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestResolve(t *testing.T) {
	r := resolver(t, "two.test", "127.0.0.1", "127.0.0.2")
	one := resolver(t, "one.test", "127.0.0.1", "fd00::1")
	for _, c := range []struct {
		resolver         *net.Resolver
		network, address string
		dests            string // with the form for errors where that is another
	}{
		{nil, "tcp", "127.0.0.1:80", "127.0.0.1:80"},
		{nil, "tcp4", "127.0.0.1:http", "127.0.0.1:80"},
		{nil, "tcp", "127.0.0.1:", "127.0.0.1:0"},
		{nil, "tcp", ":80", "127.0.0.1:80(:80)"},
		{nil, "tcp4", ":80", "127.0.0.1:80(:80)"},
		{nil, "tcp6", ":80", "[::1]:80(:80)"},
		{nil, "tcp", "0.0.0.0:80", "127.0.0.1:80(0.0.0.0:80)"},
		{nil, "tcp", "[::]:80", "127.0.0.1:80([::]:80)"},
		{nil, "tcp4", "[::]:80", "127.0.0.1:80(0.0.0.0:80)"},
		{nil, "tcp6", "[::]:80", "[::1]:80([::]:80)"},
		{nil, "tcp", "[fe80::1%eth0]:80", "[fe80::1%eth0]:80"},
		{nil, "tcp6", "[fe80::1%eth0]:80", "[fe80::1%eth0]:80"},
		{nil, "tcp", "[::ffff:10.0.0.1]:80", "10.0.0.1:80"},
		{nil, "tcp4", "[::ffff:10.0.0.1]:80", "10.0.0.1:80"},
		{r, "tcp", "two.test:80", "127.0.0.1:80 127.0.0.2:80"},
		{one, "tcp4", "one.test:80", "127.0.0.1:80"},
		{one, "tcp6", "one.test:80", "[fd00::1]:80"},
	} {
		t.Run(c.network+" "+c.address, func(t *testing.T) {
			got, err := resolve(t.Context(), &net.Dialer{Resolver: c.resolver}, c.network, c.address)
			require.NoError(t, err)
			var dests string
			for i, d := range got {
				if i > 0 {
					dests += " "
				}
				dests += d.addr.String()
				if d.shown.String() != d.addr.String() {
					dests += fmt.Sprintf("(%v)", d.shown)
				}
			}
			assert.Equal(t, c.dests, dests)
		})
	}
}

// Errors of resolution are those of net, for "san" networks too but for the network.
func TestDialAddressErrors(t *testing.T) {
	f := serving("a", "127.0.0.1/8", "::1/128")
	s := New(Config{Providers: providers(f)})
	r := resolver(t, "one.test", "127.0.0.1")
	for _, c := range []struct {
		network, address string
		local            net.Addr
	}{
		{"tcp", "", nil},
		{"tcp", "127.0.0.1", nil},
		{"tcp", "::1:80:", nil},
		{"tcp", "[::1", nil},
		{"tcp", "127.0.0.1:99999", nil},
		{"tcp", "127.0.0.1:-1", nil},
		{"tcp", "127.0.0.1:no-such-service", nil},
		{"tcp", "no-such-name.test:80", nil},
		{"tcp6", "127.0.0.1:80", nil},
		{"tcp6", "[::ffff:127.0.0.1]:80", nil},
		{"tcp4", "[::1]:80", nil},
		{"tcp6", "one.test:80", nil},
		{"tcp", "127.0.0.1:80", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}},
		{"tcp", "127.0.0.1:80", &net.UnixAddr{Name: "x", Net: "unix"}},
		{"tcp", "127.0.0.1:80", &net.TCPAddr{IP: net.IPv6loopback}},
		{"tcp5", "127.0.0.1:80", nil},
		{"", "127.0.0.1:80", nil},
		{"sanx", "127.0.0.1:80", nil},
	} {
		t.Run(c.network+" "+c.address, func(t *testing.T) {
			d := &net.Dialer{LocalAddr: c.local, Resolver: r}
			_, want := d.DialContext(t.Context(), c.network, c.address)
			require.Error(t, want)
			_, err := s.Dial(t.Context(), d, c.network, c.address)
			assertSameError(t, want, err)
			if san, ok := sanNetwork(c.network); ok {
				opErrorOf(t, want).Net = san
				_, err := s.Dial(t.Context(), d, san, c.address)
				assertSameError(t, want, err)
			}
		})
	}
	ctx := canceled()
	for _, address := range []string{"127.0.0.1:80", ":80", "one.test:80", "[::1]:80"} {
		d := &net.Dialer{Resolver: r}
		_, want := d.DialContext(ctx, "tcp", address)
		_, err := s.Dial(ctx, d, "tcp", address)
		assertSameError(t, want, err)
		assert.ErrorIs(t, err, context.Canceled)
	}
}

func sanNetwork(network string) (string, bool) {
	switch network {
	case "tcp", "tcp4", "tcp6":
		return "san" + network[len("tcp"):], true
	}
	return "", false
}

// assertSameError checks that err is what net says, in identity and text.
func assertSameError(t testing.TB, want, err error) {
	t.Helper()
	require.Error(t, err)
	assert.Equal(t, want.Error(), err.Error())
	w, e := opErrorOf(t, want), opErrorOf(t, err)
	assert.Equal(t, w.Op, e.Op)
	assert.Equal(t, w.Net, e.Net)
	assert.Equal(t, fmt.Sprint(w.Source), fmt.Sprint(e.Source))
	assert.Equal(t, fmt.Sprint(w.Addr), fmt.Sprint(e.Addr))
	assert.IsType(t, w.Addr, e.Addr)
	assert.IsType(t, w.Err, e.Err)
	assert.Equal(t, w.Timeout(), e.Timeout())
	assert.Equal(t, w.Temporary(), e.Temporary())
}

func TestLocalAddress(t *testing.T) {
	for _, c := range []struct{ network, address, want string }{
		{"tcp", "", "[::]:0"},
		{"tcp4", "", "0.0.0.0:0"},
		{"tcp", ":80", "[::]:80"},
		{"tcp6", ":80", "[::]:80"},
		{"tcp4", "[::]:80", "0.0.0.0:80"},
		{"tcp", "0.0.0.0:80", "0.0.0.0:80"},
		{"tcp", "127.0.0.1:http", "127.0.0.1:80"},
		{"tcp", "localhost:80", "127.0.0.1:80"},
		{"tcp", "[fe80::1%eth0]:0", "[fe80::1%eth0]:0"},
	} {
		got, err := localAddress(t.Context(), c.network, c.address)
		require.NoError(t, err, c.address)
		assert.Equal(t, netip.MustParseAddrPort(c.want), got, c.network+" "+c.address)
	}
}
