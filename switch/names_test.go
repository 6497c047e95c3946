package sanswitch

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/internal/hosttest"
	"sansock/provider"
)

// plainAt listens over TCP alone, and accepts all.
func plainAt(t testing.TB, network, address string) net.Listener {
	ln, err := net.Listen(network, address)
	require.NoError(t, err)
	hosttest.AcceptAll(t, ln)
	return ln
}

// Every address of a name is asked over the SAN, before TCP is the answer.
func TestDialAsksEveryAddress(t *testing.T) {
	needIPv6(t)
	for _, c := range []struct {
		name   string
		addrs  []string
		listen string
		dials  int // that the provider sees; net puts ::1 first
	}{
		{"IPv4 after IPv6", []string{"::1", "127.0.0.1"}, "127.0.0.1:0", 2},
		{"IPv6 after IPv4", []string{"127.0.0.1", "::1"}, "[::1]:0", 1},
		{"the second of two", []string{"127.0.0.2", "127.0.0.3"}, "127.0.0.3:0", 2},
		{"the third of three", []string{"127.0.0.2", "127.0.0.3", "127.0.0.4"}, "127.0.0.4:0", 3},
		{"the last of the other family", []string{"127.0.0.2", "::1", "127.0.0.4"}, "127.0.0.4:0", 3},
		{"the second is on no SAN", []string{"127.0.0.2", "192.0.2.9", "127.0.0.4"}, "127.0.0.4:0", 2},
	} {
		for _, network := range []string{"tcp", "san"} {
			t.Run(c.name+" "+network, func(t *testing.T) {
				f := newFaulty(t, emu.Config{Prefixes: func() ([]netip.Prefix, error) {
					return []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("::1/128")}, nil
				}})
				s := newSwitch(t, Config{HeadStart: patient}, f)
				l := listen(t, s, "tcp", c.listen)
				d := &net.Dialer{Resolver: resolver(t, "some.test", c.addrs...), FallbackDelay: patient}
				r, err := s.Dial(t.Context(), d, network, "some.test:"+portOf(l.Addr()))
				require.NoError(t, err)
				defer stream(r).Close()
				assertSAN(t, r)
				assert.Equal(t, l.Addr().String(), r.Session.RemoteAddr().String())
				assert.Equal(t, c.dials, f.Uses().Dials)
				echo(t, r, accept(t, l))
			})
		}
	}
}

// Where none of the addresses has a listener on the SAN, TCP is dialed, and the reason is that of
// the address which it reached.
func TestDialNameOverTCP(t *testing.T) {
	f := newFaulty(t, emu.Config{})
	f.On.Dial = func(_ context.Context, _, remote netip.AddrPort) (provider.Endpoint, error) {
		status := provider.StatusNoListener
		if remote.Addr() == netip.MustParseAddr("127.0.0.3") {
			status = provider.StatusLimit
		}
		return nil, &provider.Error{Provider: "emu", Op: "dial", Status: status}
	}
	s := newSwitch(t, Config{HeadStart: patient}, f)
	for at, why := range map[string]Reason{"127.0.0.2:0": ReasonNoListener, "127.0.0.3:0": ReasonMemory} {
		ln := plainAt(t, "tcp", at)
		d := &net.Dialer{Resolver: resolver(t, "two.test", "127.0.0.2", "127.0.0.3")}
		r, err := s.Dial(t.Context(), d, "tcp", "two.test:"+portOf(ln.Addr()))
		require.NoError(t, err)
		defer r.Conn.Close()
		assertTCP(t, r, why)
		assert.Equal(t, ln.Addr().String(), r.Conn.RemoteAddr().String())
	}
}

// An address that does not answer on the SAN does not keep the others from it: the other family
// follows after the delay, and what was silent is avoided by the next dial.
func TestDialPastASilentAddress(t *testing.T) {
	needIPv6(t)
	f := newFaulty(t, emu.Config{})
	s := newSwitch(t, Config{HeadStart: patient}, f)
	s.negatives.first = s.negatives.ttl
	l := listen(t, s, "tcp", "127.0.0.1:0")
	silent := true
	f.On.Dial = func(ctx context.Context, local, remote netip.AddrPort) (provider.Endpoint, error) {
		if silent && remote.Addr() == netip.IPv6Loopback() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return f.Provider.Dial(ctx, local, remote)
	}
	d := &net.Dialer{Resolver: resolver(t, "both.test", "::1", "127.0.0.1"), FallbackDelay: time.Millisecond}
	for _, network := range []string{"tcp", "san"} {
		for range lateLimit {
			r, err := s.Dial(t.Context(), d, network, "both.test:"+portOf(l.Addr()))
			require.NoError(t, err)
			defer stream(r).Close()
			assertSAN(t, r)
			accept(t, l)
		}
	}
	_, avoided := s.negatives.get(netip.MustParseAddrPort("[::1]:" + portOf(l.Addr())))
	assert.True(t, avoided)
	_, avoided = s.negatives.get(netip.MustParseAddrPort(l.Addr().String()))
	assert.False(t, avoided)
}

// A name is looked up once, and as net looks it up, whatever becomes of the dial.
func TestDialLooksUpOnce(t *testing.T) {
	needIPv6(t)
	san := newSwitch(t, Config{HeadStart: patient}, newFaulty(t, emu.Config{}))
	none := newSwitch(t, Config{})
	both, plain := listen(t, san, "tcp", "127.0.0.2:0"), plainAt(t, "tcp", "127.0.0.2:0")
	both6 := listen(t, san, "tcp", "[::1]:0")
	for _, c := range []struct {
		name, network string
		port          string
		want          Path // 0: it fails
	}{
		{"over the SAN", "tcp", portOf(both.Addr()), PathSAN},
		{"over the SAN", "tcp4", portOf(both.Addr()), PathSAN},
		{"over the SAN", "tcp6", portOf(both6.Addr()), PathSAN},
		{"over TCP", "tcp", portOf(plain.Addr()), PathTCP},
		{"over TCP", "tcp4", portOf(plain.Addr()), PathTCP},
		{"to a closed port", "tcp", portOf(mustAddr(t, closedPort(t))), 0},
		{"to a closed port", "tcp6", portOf(mustAddr(t, closedPort(t))), 0},
	} {
		t.Run(c.network+" "+c.name, func(t *testing.T) {
			dns := newDNSServer(t, "some.test", "127.0.0.1", "127.0.0.2", "127.0.0.3", "::1")
			want := dns.asked(func() {
				if conn, err := dns.dialer().DialContext(t.Context(), c.network, "some.test:"+c.port); err == nil {
					conn.Close()
				}
			})
			require.NotZero(t, want)
			for _, s := range []*Switch{san, none} {
				assert.Equal(t, want, dns.asked(func() {
					r, err := s.Dial(t.Context(), dns.dialer(), c.network, "some.test:"+c.port)
					if c.want == 0 {
						require.Error(t, err)
						return
					}
					require.NoError(t, err)
					defer stream(r).Close()
					if s == san {
						assert.Equal(t, c.want, r.Route.Path, "%v", r.Route)
					}
				}))
			}
			network, _ := sanNetwork(c.network)
			assert.Equal(t, want, dns.asked(func() {
				if r, err := san.Dial(t.Context(), dns.dialer(), network, "some.test:"+c.port); err == nil {
					r.Session.Close()
				}
			}))
		})
	}
}

// Without any way to the addresses, too, and where some options keep the dial on TCP.
func TestDialLooksUpOnceElsewhere(t *testing.T) {
	f := newFaulty(t, emu.Config{})
	f.On.Prefixes = func() ([]netip.Prefix, error) { return []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}, nil }
	s := newSwitch(t, Config{HeadStart: patient}, f)
	ln := plainAt(t, "tcp", "127.0.0.2:0")
	dns := newDNSServer(t, "two.test", "127.0.0.1", "127.0.0.2")
	address := "two.test:" + portOf(ln.Addr())
	for _, local := range []*net.TCPAddr{nil, {IP: net.IPv4(127, 0, 0, 1)}} {
		d := dns.dialer()
		if local != nil {
			d.LocalAddr = local
		}
		dial := func(dial func() error) int64 { return dns.asked(func() { require.NoError(t, dial()) }) }
		want := dial(func() error {
			c, err := d.DialContext(t.Context(), "tcp", address)
			if err == nil {
				c.Close()
			}
			return err
		})
		assert.Equal(t, want, dial(func() error {
			r, err := s.Dial(t.Context(), d, "tcp", address)
			if err == nil {
				r.Conn.Close()
			}
			return err
		}))
	}
}

// The errors of names are those of net: of the look-up, of addresses that refuse, of local
// addresses that do not fit.
func TestDialNameErrors(t *testing.T) {
	needIPv6(t)
	s := newSwitch(t, Config{HeadStart: patient}, newFaulty(t, emu.Config{}))
	r := newDNSServer(t, "some.test", "127.0.0.2", "127.0.0.3", "::1").resolver()
	port := portOf(mustAddr(t, closedPort(t)))
	for i, c := range []struct {
		network, host string
		local         net.Addr
		resolver      *net.Resolver
		timeout       time.Duration
	}{
		{"tcp", "some.test", nil, r, 0},
		{"tcp4", "some.test", nil, r, 0},
		{"tcp6", "some.test", nil, r, 0},
		{"tcp", "other.test", nil, r, 0},
		{"tcp4", "other.test", nil, r, 0},
		{"tcp6", "other.test", nil, r, 0},
		{"tcp", "bad name", nil, r, 0},
		{"tcp", "some.test", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, r, 0},
		{"tcp", "some.test", &net.TCPAddr{IP: net.IPv6loopback}, r, 0},
		{"tcp4", "some.test", &net.TCPAddr{IP: net.IPv6loopback}, r, 0},
		{"tcp", "some.test", &net.TCPAddr{IP: net.IPv4(192, 0, 2, 77)}, r, 0},
		{"tcp", "some.test", (*net.TCPAddr)(nil), r, 0},
		{"tcp", "some.test", &net.TCPAddr{IP: net.IPv4zero}, r, 0},
		{"tcp", "some.test", &net.UDPAddr{}, r, 0},
		{"tcp", "some.test", nil, mute(), 20 * time.Millisecond},
		{"tcp", "some.test", nil, r, -1},
	} {
		t.Run(fmt.Sprint(i, " ", c.network, " ", c.host), func(t *testing.T) {
			d := &net.Dialer{Resolver: c.resolver, LocalAddr: c.local, Timeout: c.timeout}
			_, want := d.DialContext(t.Context(), c.network, c.host+":"+port)
			require.Error(t, want)
			_, err := s.Dial(t.Context(), d, c.network, c.host+":"+port)
			assertSameError(t, want, err)
		})
	}
	ctx := canceled()
	for _, d := range []*net.Dialer{{Resolver: r}, {Resolver: resolver(t, "one.test", "127.0.0.1")}} {
		for _, host := range []string{"some.test", "one.test"} {
			_, want := d.DialContext(ctx, "tcp", host+":"+port)
			_, err := s.Dial(ctx, d, "tcp", host+":"+port)
			assertSameError(t, want, err)
		}
	}
}
