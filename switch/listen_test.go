package sanswitch

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/provider"
)

func TestListenAddresses(t *testing.T) {
	needIPv6(t)
	v4 := func() ([]netip.Prefix, error) { return []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}, nil }
	v6 := func() ([]netip.Prefix, error) { return []netip.Prefix{netip.MustParsePrefix("::1/128")}, nil }
	for _, c := range []struct {
		network, address string
		prefixes         func() ([]netip.Prefix, error)
		want             string // IP that the provider listens at, "" if it does not
	}{
		{"tcp", "127.0.0.1:0", nil, "127.0.0.1"},
		{"tcp4", "127.0.0.1:0", nil, "127.0.0.1"},
		{"tcp", "[::1]:0", nil, "::1"},
		{"tcp", ":0", nil, "::"},
		{"tcp", "0.0.0.0:0", nil, "::"},
		{"tcp4", ":0", nil, "0.0.0.0"},
		{"tcp6", ":0", nil, "::"},
		{"tcp", ":0", v4, "0.0.0.0"},
		{"tcp6", ":0", v4, ""},
		{"tcp", ":0", v6, "::"},
		{"tcp4", ":0", v6, ""},
		{"tcp", "127.0.0.1:0", v6, ""},
		{"tcp", "127.0.0.9:0", v4, "127.0.0.9"},
		{"san", ":0", nil, "::"},
		{"san4", ":0", nil, "0.0.0.0"},
		{"san4", "[::]:0", nil, "0.0.0.0"},
		{"san6", ":0", nil, "::"},
		{"san", "127.0.0.1:0", nil, "127.0.0.1"},
		{"san", "", nil, "::"},
	} {
		t.Run(c.network+" "+c.address, func(t *testing.T) {
			f := newFaulty(t, emu.Config{})
			f.On.Prefixes = c.prefixes
			l := listen(t, newSwitch(t, Config{}, f), c.network, c.address)
			addr, port := l.Addr().(*net.TCPAddr), l.Addr().(*net.TCPAddr).Port
			assert.NotZero(t, port)
			if c.want == "" {
				assert.Empty(t, f.listens)
				return
			}
			require.Len(t, f.listens, 1)
			assert.Equal(t, c.want, f.listens[0].Addr().String())
			if isSAN(c.network) {
				assert.Equal(t, c.want, addr.IP.String())
			} else {
				assert.EqualValues(t, port, f.listens[0].Port())
			}
		})
	}
}

// The errors are net's.
func TestListenErrors(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	s := newSwitch(t, Config{}, newFaulty(t, emu.Config{}))
	mine := listen(t, s, "san", "127.0.0.1:0")
	for _, c := range []struct{ network, address string }{
		{"tcp", taken.Addr().String()},
		{"tcp", "127.0.0.1"},
		{"tcp", "127.0.0.1:99999"},
		{"tcp6", "127.0.0.1:0"},
		{"tcp", "192.0.2.77:0"},
		{"tcp7", "127.0.0.1:0"},
	} {
		_, want := net.Listen(c.network, c.address)
		_, err := s.Listen(t.Context(), new(net.ListenConfig), c.network, c.address)
		assertSameError(t, want, err)
		san, ok := sanNetwork(c.network)
		switch {
		case !ok, c.address == "192.0.2.77:0":
			continue
		case c.address == taken.Addr().String():
			c.address = mine.Addr().String()
			opErrorOf(t, want).Addr = mine.Addr()
		}
		opErrorOf(t, want).Net = san
		_, err = s.Listen(t.Context(), new(net.ListenConfig), san, c.address)
		assertSameError(t, want, err)
	}
	text := func(s *Switch, lc net.ListenConfig, address string) string {
		_, err := s.Listen(t.Context(), &lc, "san", address)
		assert.Equal(t, "listen", opErrorOf(t, err).Op)
		return err.Error()
	}
	f := newFaulty(t, emu.Config{})
	f.listen = func(netip.AddrPort) error {
		return &provider.Error{Provider: "emu", Op: "listen", Status: provider.StatusLimit}
	}
	control := net.ListenConfig{Control: func(string, string, syscall.RawConn) error { return nil }}
	assert.Equal(t, "listen san 192.0.2.77:0: no SAN provider for the address", text(s, net.ListenConfig{}, "192.0.2.77:0"))
	assert.Equal(t, "listen san: a Control function cannot see a SAN connection", text(s, control, "127.0.0.1:0"))
	assert.Equal(t, "listen san: no SAN in use", text(newSwitch(t, Config{}), net.ListenConfig{}, "127.0.0.1:0"))
	assert.Equal(t, "listen san 127.0.0.1:0: emu: listen: registration limit reached",
		text(newSwitch(t, Config{}, f), net.ListenConfig{}, "127.0.0.1:0"))
}

// A listener that cannot have the SAN is a TCP listener, and its connections say why.
func TestListenWithoutSAN(t *testing.T) {
	failing := func(err error) *faulty {
		f := newFaulty(t, emu.Config{})
		f.listen = func(netip.AddrPort) error { return err }
		return f
	}
	for _, c := range []struct {
		name string
		s    *Switch
		lc   net.ListenConfig
		why  Reason
		err  error
	}{
		{"no providers", newSwitch(t, Config{}), net.ListenConfig{}, ReasonDisabled, nil},
		{"not served", newSwitch(t, Config{}, serving("a", "10.0.0.1/8")), net.ListenConfig{}, ReasonNoProvider, nil},
		{"limit", newSwitch(t, Config{}, failing(provider.StatusLimit)), net.ListenConfig{}, ReasonMemory,
			provider.StatusLimit},
		{"port taken", newSwitch(t, Config{}, failing(provider.StatusAddrInUse)), net.ListenConfig{}, ReasonLocalAddr,
			provider.StatusAddrInUse},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := c.s.Listen(t.Context(), &c.lc, "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer l.Close()
			client, err := net.Dial("tcp", l.Addr().String())
			require.NoError(t, err)
			defer client.Close()
			r := accept(t, l)
			assertTCP(t, r, c.why)
			if c.err == nil {
				assert.NoError(t, r.Route.Err)
			} else {
				assert.ErrorIs(t, r.Route.Err, c.err)
			}
		})
	}
}

// Where one of two SANs cannot listen, the other does.
func TestListenOnOneOfTwo(t *testing.T) {
	first, second := newFaulty(t, emu.Config{}), newFaulty(t, emu.Config{})
	first.listen = func(netip.AddrPort) error { return provider.StatusLink }
	l := listen(t, newSwitch(t, Config{}, first, second), "tcp", "127.0.0.1:0")
	assertSAN(t, dial(t, newSwitch(t, Config{HeadStart: patient}, second), "tcp", l.Addr().String()))
	client, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	san, plain := accept(t, l), accept(t, l)
	if san.Session == nil {
		san, plain = plain, san // the dialer has its session a moment before the listener
	}
	assertSAN(t, san)
	assertTCP(t, plain, ReasonPlainClient)
	assert.ErrorIs(t, plain.Route.Err, provider.StatusLink)
}

// A port that is chosen is free on TCP and on the SAN; one that is given need not be.
func TestListenFindsFreePort(t *testing.T) {
	f := newFaulty(t, emu.Config{})
	tries := 0
	f.listen = func(netip.AddrPort) error {
		if tries++; tries < 4 {
			return provider.StatusAddrInUse
		}
		return nil
	}
	s := newSwitch(t, Config{HeadStart: patient}, f)
	l := listen(t, s, "tcp", "127.0.0.1:0")
	require.Len(t, f.listens, 4)
	assert.EqualValues(t, l.Addr().(*net.TCPAddr).Port, f.listens[3].Port())
	assertSAN(t, dial(t, s, "tcp", l.Addr().String()))
	for _, given := range f.listens[:3] {
		_, err := net.Dial("tcp", given.String())
		assert.ErrorIs(t, err, syscall.ECONNREFUSED, "given back")
	}

	l.Close()
	tries = 0
	again := listen(t, s, "tcp", l.Addr().String())
	assert.Equal(t, l.Addr().String(), again.Addr().String())
	assert.Len(t, f.listens, 5)
	assertTCP(t, dial(t, s, "tcp", l.Addr().String()), ReasonNoListener)
}

// On "san" networks no TCP port is opened, and all SANs have the same one.
func TestListenSANOnly(t *testing.T) {
	first, second := newFaulty(t, emu.Config{Name: "first"}), newFaulty(t, emu.Config{Name: "second"})
	s := newSwitch(t, Config{HeadStart: patient}, first, second)
	l := listen(t, s, "san", "127.0.0.1:0")
	assert.Equal(t, l.Addr().(*net.TCPAddr).Port, int(second.listens[0].Port()))
	_, err := net.Dial("tcp", l.Addr().String())
	assert.ErrorIs(t, err, syscall.ECONNREFUSED)
	for _, network := range []string{"san", "tcp"} {
		r := dial(t, s, network, l.Addr().String())
		a := accept(t, l)
		assert.Equal(t, "first", a.Route.Provider)
		echo(t, r, a)
	}
	r := dial(t, newSwitch(t, Config{}, second), "san", l.Addr().String())
	a := accept(t, l)
	assert.Equal(t, "second", a.Route.Provider)
	echo(t, r, a)
	_, err = s.Listen(t.Context(), new(net.ListenConfig), "san", l.Addr().String())
	assert.True(t, strings.HasSuffix(err.Error(), "bind: address already in use"), err)
}

// Listen, Dial and Accept are no deadlock for a single goroutine, on either path, several times.
func TestListenDialAcceptInTurn(t *testing.T) {
	s := newSwitch(t, Config{HeadStart: patient}, newFaulty(t, emu.Config{}))
	for _, network := range []string{"tcp", "san"} {
		l := listen(t, s, network, "127.0.0.1:0")
		var dialed []Result
		for range 5 {
			dialed = append(dialed, dial(t, s, network, l.Addr().String()))
			if network == "tcp" {
				c, err := net.Dial("tcp", l.Addr().String())
				require.NoError(t, err)
				defer c.Close()
			}
		}
		for _, d := range dialed {
			for {
				if a := accept(t, l); a.Session != nil {
					assert.Equal(t, d.Session.LocalAddr(), a.Session.RemoteAddr(), "in the order of dialing")
					echo(t, d, a)
					break
				}
			}
		}
	}
}

// Many at a time, over both paths, all arrive.
func TestAcceptConcurrently(t *testing.T) {
	f := newFaulty(t, emu.Config{})
	s := newSwitch(t, Config{HeadStart: patient}, f)
	l := listen(t, s, "tcp", "127.0.0.1:0")
	const n = 64
	var wg sync.WaitGroup
	var mu sync.Mutex
	paths := make(map[Path]int)
	for range 4 {
		wg.Go(func() {
			for {
				r, err := l.Accept()
				if err != nil {
					return
				}
				mu.Lock()
				paths[r.Route.Path]++
				last := paths[PathSAN] == n && paths[PathTCP] == n
				mu.Unlock()
				stream(r).Close()
				if last {
					l.Close()
				}
			}
		})
	}
	for range n {
		wg.Go(func() {
			r, err := s.Dial(context.Background(), new(net.Dialer), "tcp", l.Addr().String())
			if assert.NoError(t, err) {
				assertSAN(t, r)
				r.Session.Close()
			}
		})
		wg.Go(func() {
			c, err := net.Dial("tcp", l.Addr().String())
			if assert.NoError(t, err) {
				c.Close()
			}
		})
	}
	wg.Wait()
	assert.Equal(t, map[Path]int{PathSAN: n, PathTCP: n}, paths)
}
