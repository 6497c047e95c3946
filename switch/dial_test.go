package sanswitch

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/internal/probe"
	"sansock/provider"
	"sansock/session"
)

func needIPv6(t testing.TB) {
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skip(err)
	}
	l.Close()
}

// closedPort returns an address of 127.0.0.1 where nothing listens.
func closedPort(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func portOf(a net.Addr) string {
	_, port, _ := net.SplitHostPort(a.String())
	return port
}

func TestDialOverSAN(t *testing.T) {
	f := newFaulty(t, emu.Config{})
	s := newSwitch(t, Config{HeadStart: patient}, f)
	l := listen(t, s, "tcp", "127.0.0.1:0")
	port := portOf(l.Addr())
	two := resolver(t, "two.test", "127.0.0.1", "127.0.0.2")
	for _, c := range []struct{ network, address string }{
		{"tcp", "127.0.0.1:" + port},
		{"tcp4", "127.0.0.1:" + port},
		{"tcp", "[::ffff:127.0.0.1]:" + port},
		{"tcp4", "[::ffff:127.0.0.1]:" + port},
		{"tcp", ":" + port},
		{"tcp", "0.0.0.0:" + port},
		{"tcp", "[::]:" + port},
		{"tcp4", "localhost:" + port},
		{"tcp", "two.test:" + port},
		{"san", "two.test:" + port},
		{"san", "127.0.0.1:" + port},
		{"san4", "127.0.0.1:" + port},
	} {
		t.Run(c.network+" "+c.address, func(t *testing.T) {
			d := new(net.Dialer)
			if strings.HasPrefix(c.address, "two") {
				d.Resolver = two
			}
			r, err := s.Dial(t.Context(), d, c.network, c.address)
			require.NoError(t, err)
			defer r.Session.Close()
			assertSAN(t, r)
			assert.Equal(t, "127.0.0.1:"+port, r.Session.RemoteAddr().String())
			a := accept(t, l)
			assertSAN(t, a)
			echo(t, r, a)
		})
	}
}

func TestDialOverSANIPv6(t *testing.T) {
	needIPv6(t)
	s := newSwitch(t, Config{HeadStart: patient}, newFaulty(t, emu.Config{}))
	l := listen(t, s, "tcp6", "[::]:0")
	port := portOf(l.Addr())
	for _, c := range []struct{ network, address string }{
		{"tcp", "[::1]:" + port},
		{"tcp6", "[::1]:" + port},
		{"tcp6", ":" + port},
		{"san6", "[::]:" + port},
	} {
		r := dial(t, s, c.network, c.address)
		assertSAN(t, r)
		assert.Equal(t, "[::1]:"+port, r.Session.RemoteAddr().String())
		echo(t, r, accept(t, l))
	}

	// A listener for IPv6 has no say about IPv4, where another may listen at the same port.
	_, err := s.Dial(t.Context(), new(net.Dialer), "tcp", "127.0.0.1:"+port)
	assert.ErrorIs(t, err, syscall.ECONNREFUSED)
	ln, err := net.Listen("tcp4", "127.0.0.1:"+port)
	require.NoError(t, err)
	defer ln.Close()
	r := dial(t, s, "tcp", "127.0.0.1:"+port)
	assertTCP(t, r, ReasonPeerDeclined)
	assert.Equal(t, ReasonNoListener, r.Route.Peer)
}

func TestDialOtherNetworks(t *testing.T) {
	s := newSwitch(t, Config{}, newFaulty(t, emu.Config{}))
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer udp.Close()
	r := dial(t, s, "udp", udp.LocalAddr().String())
	assert.IsType(t, (*net.UDPConn)(nil), r.Conn)
	assert.Equal(t, Route{Path: PathOther, Reason: ReasonNetwork}, r.Route)

	l := listen(t, s, "unix", filepath.Join(t.TempDir(), "socket"))
	r = dial(t, s, "unix", l.Addr().String())
	assert.IsType(t, (*net.UnixConn)(nil), r.Conn)
	assert.Equal(t, Route{Path: PathOther, Reason: ReasonNetwork}, r.Route)
	a := accept(t, l)
	assert.Equal(t, Route{Path: PathOther, Reason: ReasonNetwork}, a.Route)
	echo(t, r, a)
	assert.NoError(t, l.SetDeadline(time.Now().Add(-time.Second)))
	_, err = l.Accept()
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

// Options that only a socket can fulfil go over TCP.
func TestDialOptions(t *testing.T) {
	f := newFaulty(t, emu.Config{Prefixes: func() ([]netip.Prefix, error) {
		return []netip.Prefix{netip.MustParsePrefix("127.0.0.1/30")}, nil
	}})
	s := newSwitch(t, Config{HeadStart: patient}, f)
	l := listen(t, s, "tcp", "127.0.0.1:0")
	closed := newSwitch(t, Config{}, newFaulty(t, emu.Config{}))
	require.NoError(t, closed.Close())
	require.NoError(t, closed.Close())
	var asked atomic.Int32
	ip := func(s string) *net.TCPAddr { return &net.TCPAddr{IP: net.ParseIP(s)} }
	controlled := ReasonSAN
	if !probe.Supported {
		controlled = ReasonControl
	}
	for _, c := range []struct {
		name string
		s    *Switch
		d    net.Dialer
		why  Reason // ReasonSAN: over the SAN
		from string // local IP
	}{
		{"none", s, net.Dialer{}, ReasonSAN, "127.0.0.1"},
		{"no providers", newSwitch(t, Config{}), net.Dialer{}, ReasonDisabled, "127.0.0.1"},
		{"closed", closed, net.Dialer{}, ReasonDisabled, "127.0.0.1"},
		{"Control", s, net.Dialer{Control: func(string, string, syscall.RawConn) error {
			asked.Add(1)
			return nil
		}}, controlled, "127.0.0.1"},
		{"ControlContext", s, net.Dialer{ControlContext: func(context.Context, string, string, syscall.RawConn) error {
			asked.Add(1)
			return nil
		}}, controlled, "127.0.0.1"},
		{"LocalAddr", s, net.Dialer{LocalAddr: ip("127.0.0.2")}, ReasonSAN, "127.0.0.2"},
		{"LocalAddr, mapped", s, net.Dialer{LocalAddr: ip("::ffff:127.0.0.2")}, ReasonSAN, "127.0.0.2"},
		{"LocalAddr, any", s, net.Dialer{LocalAddr: &net.TCPAddr{}}, ReasonSAN, "127.0.0.1"},
		{"LocalAddr, any IPv4", s, net.Dialer{LocalAddr: ip("0.0.0.0")}, ReasonSAN, "127.0.0.1"},
		{"LocalAddr, nil", s, net.Dialer{LocalAddr: (*net.TCPAddr)(nil)}, ReasonSAN, "127.0.0.1"},
		{"LocalAddr of TCP", s, net.Dialer{LocalAddr: ip("127.0.0.77")}, ReasonLocalAddr, "127.0.0.77"},
		{"KeepAlive", s, net.Dialer{KeepAlive: time.Second, FallbackDelay: -1}, ReasonSAN, "127.0.0.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := c.s.Dial(t.Context(), &c.d, "tcp", l.Addr().String())
			require.NoError(t, err)
			defer stream(r).Close()
			a := accept(t, l)
			if c.why == ReasonSAN {
				assertSAN(t, r)
				assert.Equal(t, c.from, r.Session.LocalAddr().Addr().String())
				assert.Equal(t, r.Session.LocalAddr(), a.Session.RemoteAddr())
			} else {
				assertTCP(t, r, c.why)
				assert.Equal(t, c.from, r.Conn.LocalAddr().(*net.TCPAddr).IP.String())
			}
			echo(t, r, a)
		})
	}
	assert.EqualValues(t, 2, asked.Load())
}

func TestDialFromPort(t *testing.T) {
	s := newSwitch(t, Config{HeadStart: patient}, newFaulty(t, emu.Config{}))
	l := listen(t, s, "tcp", "127.0.0.1:0")
	for _, ip := range []net.IP{net.IPv4(127, 0, 0, 1), nil} {
		local, err := net.ResolveTCPAddr("tcp", closedPort(t))
		require.NoError(t, err)
		from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: ip, Port: local.Port}}
		r, err := s.Dial(t.Context(), from, "tcp", l.Addr().String())
		require.NoError(t, err)
		assertSAN(t, r)
		assert.Equal(t, local.String(), r.Session.LocalAddr().String())
		peer := accept(t, l)
		r.Session.Close()
		var b [1]byte
		_, err = peer.Session.Read(b[:])
		assert.Error(t, err)
		peer.Session.Close()
		for range 5000 {
			// The port is free again once both ends are closed for good.
			if r, err = s.Dial(t.Context(), from, "san", l.Addr().String()); err == nil {
				r.abort()
				accept(t, l)
				break
			}
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, err)
	}
}

// What the SAN refuses is an error as TCP's, at once: there is no fallback.
func TestDialRefusedBySAN(t *testing.T) {
	for _, c := range []struct {
		status provider.Status
		errno  syscall.Errno
	}{
		{provider.StatusRefused, syscall.ECONNREFUSED},
		{provider.StatusUnreachable, syscall.EHOSTUNREACH},
		{provider.StatusDisconnected, syscall.ECONNRESET},
	} {
		t.Run(c.errno.Error(), func(t *testing.T) {
			f := newFaulty(t, emu.Config{})
			s := newSwitch(t, Config{HeadStart: patient}, f)
			ln, err := net.Listen("tcp", "127.0.0.1:0") // it would be there
			require.NoError(t, err)
			defer ln.Close()
			failDial(c.status)(f)
			port := portOf(ln.Addr())
			shut := portOf(&net.TCPAddr{Port: int(netip.MustParseAddrPort(closedPort(t)).Port())})
			for _, d := range []net.Dialer{{}, {LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 5)}}} {
				for _, host := range []string{"127.0.0.1", "", "0.0.0.0", "[::]"} {
					if d.LocalAddr != nil && host != "127.0.0.1" {
						continue // left to net, see hasLocalIP
					}
					for _, network := range []string{"tcp", "tcp4"} {
						want := func() *net.OpError {
							_, want := d.DialContext(t.Context(), network, host+":"+shut)
							oe := opErrorOf(t, want)
							oe.Addr.(*net.TCPAddr).Port = int(netip.MustParseAddrPort(ln.Addr().String()).Port())
							oe.Err = os.NewSyscallError("connect", c.errno)
							return oe
						}()
						for range 2 { // it is not remembered as a failure of the SAN
							_, err := s.Dial(t.Context(), &d, network, host+":"+port)
							assertSameError(t, want, err)
							assert.ErrorIs(t, err, c.errno)
						}
						want.Net, _ = sanNetwork(network)
						_, err = s.Dial(t.Context(), &d, want.Net, host+":"+port)
						assertSameError(t, want, err)
					}
				}
			}

			// A name with several addresses is net's to go on with.
			d := net.Dialer{Resolver: resolver(t, "two.test", "127.0.0.1", "127.0.0.2")}
			for range 2 {
				r, err := s.Dial(t.Context(), &d, "tcp", "two.test:"+port)
				require.NoError(t, err)
				defer r.Conn.Close()
				assertTCP(t, r, reasonOf(c.status))
			}
		})
	}
}

func TestDialClosedPort(t *testing.T) {
	s := newSwitch(t, Config{HeadStart: patient}, newFaulty(t, emu.Config{}))
	address := closedPort(t)
	_, want := net.Dial("tcp", address)
	_, err := s.Dial(t.Context(), new(net.Dialer), "tcp", address)
	assertSameError(t, want, err)
	assert.ErrorIs(t, err, syscall.ECONNREFUSED)
}

// A name goes over the SAN for the first of its addresses that is on it, or else to net as a whole.
func TestDialName(t *testing.T) {
	f := newFaulty(t, emu.Config{Prefixes: func() ([]netip.Prefix, error) {
		return []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}, nil
	}})
	s := newSwitch(t, Config{HeadStart: patient}, f)
	d := net.Dialer{Resolver: resolver(t, "two.test", "127.0.0.1", "127.0.0.2")}
	l := listen(t, s, "tcp", "127.0.0.2:0")
	r, err := s.Dial(t.Context(), &d, "tcp", "two.test:"+portOf(l.Addr()))
	require.NoError(t, err)
	defer r.Session.Close()
	assertSAN(t, r)
	assert.Equal(t, l.Addr().String(), r.Session.RemoteAddr().String())

	f.listen = func(netip.AddrPort) error { return provider.StatusLimit }
	plain := listen(t, s, "tcp", "127.0.0.2:0")
	r, err = s.Dial(t.Context(), &d, "tcp", "two.test:"+portOf(plain.Addr()))
	require.NoError(t, err)
	defer r.Conn.Close()
	assertTCP(t, r, ReasonNoListener)
	assert.Equal(t, plain.Addr().String(), r.Conn.RemoteAddr().String())

	_, want := d.DialContext(t.Context(), "tcp", "two.test:"+portOf(mustAddr(t, closedPort(t))))
	_, err = s.Dial(t.Context(), &d, "tcp", "two.test:"+fmt.Sprint(opErrorOf(t, want).Addr.(*net.TCPAddr).Port))
	assertSameError(t, want, err)
}

func mustAddr(t testing.TB, s string) net.Addr {
	a, err := net.ResolveTCPAddr("tcp", s)
	require.NoError(t, err)
	return a
}

// The provider sees what TCP would: the zone is kept, a mapped address is IPv4.
func TestDialAddressesOfProvider(t *testing.T) {
	f := newFaulty(t, emu.Config{})
	f.On.Prefixes = func() ([]netip.Prefix, error) {
		return []netip.Prefix{netip.MustParsePrefix("fe80::1/64"), netip.MustParsePrefix("10.0.0.1/24")}, nil
	}
	type call struct{ local, remote string }
	var got []call
	f.On.Dial = func(_ context.Context, local, remote netip.AddrPort) (provider.Endpoint, error) {
		got = append(got, call{local.String(), remote.String()})
		return nil, provider.StatusRefused
	}
	s := newSwitch(t, Config{HeadStart: patient}, f)
	for _, c := range []struct {
		address string
		local   *net.TCPAddr
		want    call
	}{
		{"[fe80::7%lo]:80", nil, call{"invalid AddrPort", "[fe80::7%lo]:80"}},
		{"[fe80::7%lo]:80", &net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "lo"}, call{"[fe80::1%lo]:0", "[fe80::7%lo]:80"}},
		{"10.0.0.7:80", &net.TCPAddr{Port: 7000}, call{"10.0.0.1:7000", "10.0.0.7:80"}},
		{"10.0.0.7:80", &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 7000}, call{"10.0.0.1:7000", "10.0.0.7:80"}},
		{"[::ffff:10.0.0.7]:80", nil, call{"invalid AddrPort", "10.0.0.7:80"}},
	} {
		d := new(net.Dialer)
		if c.local != nil {
			d.LocalAddr = c.local
		}
		_, err := s.Dial(t.Context(), d, "tcp", c.address)
		assert.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.NotEmpty(t, got)
		assert.Equal(t, c.want, got[len(got)-1])
	}
}

// Providers are tried in their order, until one connects.
func TestDialSeveralProviders(t *testing.T) {
	first, second := newFaulty(t, emu.Config{Name: "first"}), newFaulty(t, emu.Config{Name: "second"})
	s := newSwitch(t, Config{HeadStart: patient}, first, second)
	s.negatives.first = s.negatives.ttl // however slow this machine is
	l := listen(t, s, "tcp", "127.0.0.1:0")
	r := dial(t, s, "tcp", l.Addr().String())
	assert.Equal(t, "first", r.Route.Provider)
	a := accept(t, l)
	assert.Equal(t, "first", a.Route.Provider)
	echo(t, r, a)

	failDial(provider.StatusNoListener)(first)
	r = dial(t, s, "tcp", l.Addr().String())
	assert.Equal(t, "second", r.Route.Provider)
	a = accept(t, l)
	assert.Equal(t, "second", a.Route.Provider)
	echo(t, r, a)

	failDial(provider.StatusLink)(second)
	r = dial(t, s, "tcp", l.Addr().String())
	assertTCP(t, r, ReasonNoListener)
	echo(t, r, accept(t, l))
	assertTCP(t, dial(t, s, "tcp", l.Addr().String()), ReasonCached)

	// A refusal is final, whoever it comes from.
	failDial(provider.StatusRefused)(first)
	asked := second.Uses().Dials
	_, err := s.Dial(t.Context(), new(net.Dialer), "san", l.Addr().String())
	assert.ErrorIs(t, err, syscall.ECONNREFUSED)
	assert.Equal(t, asked, second.Uses().Dials)
}

func TestDialSANOnly(t *testing.T) {
	f := newFaulty(t, emu.Config{Prefixes: func() ([]netip.Prefix, error) {
		return []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, nil
	}})
	s := newSwitch(t, Config{Session: session.Config{Timeout: time.Minute}}, f)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer tcp.Close()
	address := tcp.Addr().String()
	text := func(d net.Dialer, network, address string) string {
		_, err := s.Dial(t.Context(), &d, network, address)
		oe := opErrorOf(t, err)
		assert.Equal(t, "dial", oe.Op)
		assert.Equal(t, network, oe.Net)
		return strings.ReplaceAll(err.Error(), address, "ADDR")
	}
	assert.Equal(t, "dial san ADDR: connect: connection refused (emu: dial: no listener on the SAN)",
		text(net.Dialer{}, "san", address))
	_, err = s.Dial(t.Context(), new(net.Dialer), "san4", address)
	assert.ErrorIs(t, err, syscall.ECONNREFUSED)
	assert.ErrorIs(t, err, provider.StatusNoListener)
	assert.Equal(t, "dial san ADDR: no SAN provider for the address", text(net.Dialer{}, "san", "127.0.0.2:80"))
	assert.Equal(t, "dial san 127.0.0.9:0->ADDR: local address not available on the SAN",
		text(net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}, "san", address))
	failDial(provider.StatusLink)(f)
	assert.Equal(t, "dial san ADDR: emu: dial: link failed", text(net.Dialer{}, "san", address))
	s = newSwitch(t, Config{})
	assert.Equal(t, "dial san: no SAN in use", text(net.Dialer{}, "san", address))
	f = newFaulty(t, emu.Config{})
	f.On.Prefixes = func() ([]netip.Prefix, error) { return nil, provider.StatusLink }
	s = newSwitch(t, Config{}, f)
	assert.Equal(t, "dial san ADDR: no SAN provider for the address (link failed)", text(net.Dialer{}, "san", address))
}

// Contexts end a dial with the error that net has for it, wherever it is.
func TestDialContext(t *testing.T) {
	for _, stage := range []struct {
		name  string
		fault func(f *faulty, reached func())
	}{
		{"dial", func(f *faulty, reached func()) {
			f.On.Dial = func(ctx context.Context, _, _ netip.AddrPort) (provider.Endpoint, error) {
				reached()
				<-ctx.Done()
				return nil, ctx.Err()
			}
		}},
		{"negotiation", func(f *faulty, reached func()) {
			answer(nil)(f)
			f.dialed.sent = reached
		}},
	} {
		for _, network := range []string{"tcp", "san"} {
			t.Run(stage.name+" "+network, func(t *testing.T) {
				f := newFaulty(t, emu.Config{})
				s := newSwitch(t, Config{HeadStart: patient, NegativeTTL: -1, Session: session.Config{Timeout: time.Minute}}, f)
				l := listen(t, s, "tcp", "127.0.0.1:0")
				address := l.Addr().String()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stage.fault(f, cancel)
				_, err := s.Dial(ctx, new(net.Dialer), network, address)
				oe := opErrorOf(t, err)
				assert.Equal(t, "dial "+network+" "+address+": operation was canceled", err.Error())
				assert.ErrorIs(t, err, context.Canceled)
				assert.False(t, oe.Timeout())

				for _, d := range []net.Dialer{
					{Timeout: 5 * time.Millisecond},
					{Deadline: time.Now().Add(5 * time.Millisecond), Timeout: time.Hour},
					{Timeout: -1},
					{Deadline: time.Unix(1, 0)},
				} {
					_, err := s.Dial(t.Context(), &d, network, address)
					if err == nil {
						// TCP had its share of the time, and has made use of it.
						require.Equal(t, "tcp", network)
						continue
					}
					assert.Equal(t, "dial "+network+" "+address+": i/o timeout", err.Error())
					assert.True(t, opErrorOf(t, err).Timeout(), "with either of two causes, as in net")
				}
			})
		}
	}
}

// TCP has a share of a short time, whatever the SAN does.
func TestDialShortTimeout(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	assert.Equal(t, DefaultHeadStart, shorten(DefaultHeadStart, ctx))
	assert.Equal(t, DefaultHeadStart, shorten(DefaultHeadStart, t.Context()))
	assert.LessOrEqual(t, shorten(time.Hour, ctx), time.Hour/2)
	assert.Greater(t, shorten(time.Hour, ctx), time.Hour/4)

	f := newFaulty(t, emu.Config{})
	f.On.Dial = func(ctx context.Context, _, _ netip.AddrPort) (provider.Endpoint, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s := newSwitch(t, Config{HeadStart: patient}, f)
	l := listen(t, s, "tcp", "127.0.0.1:0")
	r, err := s.Dial(t.Context(), &net.Dialer{Timeout: 2 * time.Second}, "tcp", l.Addr().String())
	require.NoError(t, err)
	defer r.Conn.Close()
	assertTCP(t, r, ReasonRaceLost)
}

// However many dials are called off, and wherever, nothing is left behind.
func TestCanceledDialsLeaveNothing(t *testing.T) {
	f := newFaulty(t, emu.Config{})
	s := newSwitch(t, Config{HeadStart: 20 * time.Microsecond, NegativeTTL: -1}, f)
	l := listen(t, s, "tcp", "127.0.0.1:0")
	address := l.Addr().String()
	go func() {
		for {
			r, err := l.Accept()
			if err != nil {
				return
			}
			r.abort()
		}
	}()
	before := descriptors(t)
	var wg sync.WaitGroup
	dead := canceled()
	for i := range 4 {
		wg.Go(func() {
			for j := range 2500 {
				ctx, cancel := dead, func() {}
				if j%2 == 0 {
					d := time.Duration((i*2500+j)%400) * time.Microsecond
					ctx, cancel = context.WithTimeout(t.Context(), d)
				}
				network := "tcp"
				if j%4 < 2 {
					network = "san"
				}
				r, err := s.Dial(ctx, new(net.Dialer), network, address)
				if cancel(); err == nil {
					r.abort()
				}
			}
		})
	}
	wg.Wait()
	l.Close()
	f.assertClean(t)
	assert.Eventually(t, func() bool { return descriptors(t) < before }, 10*time.Second, 10*time.Millisecond)
}

// descriptors counts those of the process, where that can be done.
func descriptors(t testing.TB) int {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(fds)
}
