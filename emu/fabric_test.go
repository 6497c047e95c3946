package emu

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/provider"
)

// hosted is a provider with made-up addresses.
func hosted(t testing.TB, fabric *Fabric) *Provider {
	return open(t, Config{Fabric: fabric, Prefixes: func() ([]netip.Prefix, error) {
		return []netip.Prefix{
			netip.MustParsePrefix("10.0.0.1/32"),
			netip.MustParsePrefix("10.0.0.2/32"),
			netip.MustParsePrefix("fd00::1/128"),
			netip.MustParsePrefix("fe80::1/128"),
		}, nil
	}})
}

func ap(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// dialTo dials and accepts, and returns what both sides see.
func dialTo(t *testing.T, p *Provider, l provider.Listener, local, to string) (dialer, accepted provider.Endpoint) {
	var from netip.AddrPort
	if local != "" {
		from = ap(local)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		e, err := accept(l)
		if assert.NoError(t, err) {
			accepted = e
		}
	})
	dialer, err := p.Dial(context.Background(), from, ap(to))
	require.NoError(t, err)
	wg.Wait()
	t.Cleanup(func() { dialer.Close(); accepted.Close() })
	return dialer, accepted
}

func statusOf(t *testing.T, want provider.Status, err error) {
	t.Helper()
	var e *provider.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, want, e.Status, "%v", err)
	require.Equal(t, "emu", e.Provider)
}

func TestAddresses(t *testing.T) {
	for name, c := range map[string]struct{ listen, local, dial, from, to string }{
		"exact":             {"10.0.0.1:80", "", "10.0.0.1:80", "10.0.0.1", "10.0.0.1:80"},
		"own address":       {"10.0.0.1:80", "10.0.0.2:7", "10.0.0.1:80", "10.0.0.2", "10.0.0.1:80"},
		"local unspecified": {"10.0.0.1:80", "0.0.0.0:0", "10.0.0.1:80", "10.0.0.1", "10.0.0.1:80"},
		"any v4":            {"0.0.0.0:80", "", "10.0.0.2:80", "10.0.0.2", "10.0.0.2:80"},
		"loopback":          {"0.0.0.0:80", "", "127.3.2.1:80", "127.0.0.1", "127.3.2.1:80"},
		"any v6":            {"[::]:80", "", "[fd00::1]:80", "fd00::1", "[fd00::1]:80"},
		"any v6, by v4":     {"[::]:80", "", "10.0.0.1:80", "10.0.0.1", "10.0.0.1:80"},
		"mapped":            {"[::ffff:10.0.0.1]:80", "", "[::ffff:10.0.0.1]:80", "10.0.0.1", "10.0.0.1:80"},
		"dial any v4":       {"127.0.0.1:80", "", "0.0.0.0:80", "127.0.0.1", "127.0.0.1:80"},
		"dial any v6":       {"[::1]:80", "", "[::]:80", "::1", "[::1]:80"},
		"zone":              {"[fe80::1%eth0]:80", "", "[fe80::1%eth0]:80", "fe80::1%eth0", "[fe80::1%eth0]:80"},
		"every zone":        {"[fe80::1]:80", "", "[fe80::1%eth0]:80", "fe80::1%eth0", "[fe80::1%eth0]:80"},
		"any v6, zone":      {"[::]:80", "", "[fe80::1%eth0]:80", "fe80::1%eth0", "[fe80::1%eth0]:80"},
		"needless zone":     {"[fd00::1%eth0]:80", "", "[fd00::1]:80", "fd00::1", "[fd00::1]:80"},
	} {
		t.Run(name, func(t *testing.T) {
			p := hosted(t, nil)
			l, err := p.Listen(ap(c.listen), 1)
			require.NoError(t, err)
			a, b := dialTo(t, p, l, c.local, c.dial)
			require.Equal(t, c.from, a.LocalAddr().Addr().String())
			require.Equal(t, c.to, a.RemoteAddr().String())
			require.Equal(t, c.to, b.LocalAddr().String())
			require.Equal(t, a.LocalAddr(), b.RemoteAddr())
			if c.local == "" {
				require.GreaterOrEqual(t, a.LocalAddr().Port(), uint16(firstEphemeral))
			}
		})
	}
}

func TestNoListener(t *testing.T) {
	p := hosted(t, nil)
	for _, c := range []struct{ listen, dial string }{
		{"10.0.0.1:80", "10.0.0.1:81"},
		{"10.0.0.1:80", "10.0.0.2:80"},
		{"0.0.0.0:82", "[fd00::1]:82"},
		{"[fe80::1%eth0]:83", "[fe80::1%eth1]:83"},
		{"[fe80::1%eth0]:84", "[fe80::1]:84"},
		{"10.0.0.1:85", "192.0.2.99:85"},
		{"10.0.0.1:86", "10.0.0.1:0"},
	} {
		l, err := p.Listen(ap(c.listen), 1)
		require.NoError(t, err)
		_, err = p.Dial(context.Background(), netip.AddrPort{}, ap(c.dial))
		l.Close()
		statusOf(t, provider.StatusNoListener, err)
		require.NotErrorIs(t, err, syscall.ECONNREFUSED)
	}
	_, err := p.Dial(context.Background(), netip.AddrPort{}, netip.AddrPort{})
	statusOf(t, provider.StatusNoListener, err)
	_, err = p.Listen(netip.AddrPort{}, 1)
	statusOf(t, provider.StatusAddrNotAvail, err)
}

func TestAddrInUse(t *testing.T) {
	for _, c := range []struct {
		first, second string
		taken         bool
	}{
		{"10.0.0.1:80", "10.0.0.1:80", true},
		{"10.0.0.1:80", "10.0.0.2:80", false},
		{"10.0.0.1:80", "10.0.0.1:81", false},
		{"10.0.0.1:80", "0.0.0.0:80", true},
		{"0.0.0.0:80", "10.0.0.1:80", true},
		{"0.0.0.0:80", "[fd00::1]:80", false},
		{"[::]:80", "10.0.0.1:80", true},
		{"[::]:80", "0.0.0.0:80", true},
		{"[fd00::1]:80", "[::]:80", true},
		{"[fe80::1%eth0]:80", "[fe80::1%eth1]:80", false},
	} {
		fabric := NewFabric()
		a, b := hosted(t, fabric), hosted(t, fabric)
		l, err := a.Listen(ap(c.first), 1)
		require.NoError(t, err)
		_, err = b.Listen(ap(c.second), 1)
		if !c.taken {
			require.NoError(t, err)
			continue
		}
		statusOf(t, provider.StatusAddrInUse, err)
		require.ErrorIs(t, err, syscall.EADDRINUSE)
		require.NoError(t, l.Close())
		_, err = b.Listen(ap(c.second), 1)
		require.NoError(t, err, "free again")
	}
}

func TestAddrNotAvail(t *testing.T) {
	p := hosted(t, nil)
	_, err := p.Listen(ap("10.0.0.9:80"), 1)
	statusOf(t, provider.StatusAddrNotAvail, err)
	require.ErrorIs(t, err, syscall.EADDRNOTAVAIL)
	_, err = p.Listen(ap("10.0.0.1:80"), 1)
	require.NoError(t, err)
	for _, local := range []string{"10.0.0.9:0", "[fd00::1]:0"} {
		_, err = p.Dial(context.Background(), ap(local), ap("10.0.0.1:80"))
		statusOf(t, provider.StatusAddrNotAvail, err)
	}
}

func TestPrefixes(t *testing.T) {
	p := open(t, Config{})
	ps, err := p.Prefixes()
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1/8", ps[0].String())
	require.Equal(t, "::1/128", ps[1].String())
	for _, x := range ps[2:] {
		require.True(t, x.IsSingleIP())
		l, err := p.Listen(netip.AddrPortFrom(x.Addr(), 0), 1)
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
	addrs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addrs {
		ip, _ := netip.AddrFromSlice(a.(*net.IPNet).IP)
		require.True(t, slices.ContainsFunc(ps, func(x netip.Prefix) bool { return x.Contains(ip.Unmap()) }), ip)
	}

	broken := errors.New("no addresses")
	p = open(t, Config{Prefixes: func() ([]netip.Prefix, error) { return nil, broken }})
	_, err = p.Prefixes()
	require.ErrorIs(t, err, broken)
	_, err = p.Listen(ap("10.0.0.1:80"), 1)
	require.ErrorIs(t, err, broken)
}

func TestEphemeralPorts(t *testing.T) {
	fabric := NewFabric()
	p := hosted(t, fabric)
	seen := map[uint16]bool{}
	l, err := p.Listen(ap("10.0.0.1:0"), 1)
	require.NoError(t, err)
	seen[l.Addr().Port()] = true
	for range 50 {
		a, _ := dialTo(t, p, l, "", l.Addr().String())
		port := a.LocalAddr().Port()
		require.False(t, seen[port])
		seen[port] = true
		other, err := p.Listen(ap("10.0.0.2:0"), 1)
		require.NoError(t, err)
		require.False(t, seen[other.Addr().Port()])
		seen[other.Addr().Port()] = true
	}

	// A port that a connection has, to the same listener, is taken until both ends are closed.
	a, b := dialTo(t, p, l, "10.0.0.1:7", l.Addr().String())
	for _, e := range []provider.Endpoint{a, b} {
		_, err = p.Dial(context.Background(), ap("10.0.0.1:7"), l.Addr())
		statusOf(t, provider.StatusAddrInUse, err)
		e.Close()
	}
	c, _ := dialTo(t, p, l, "10.0.0.1:7", l.Addr().String())
	require.EqualValues(t, 7, c.LocalAddr().Port())
}

func TestEphemeralPortsRunOut(t *testing.T) {
	// More connections than ports: a port may serve different listeners.
	f := NewFabric()
	local, one, two := ap("10.0.0.1:0"), ap("10.0.0.1:80"), ap("10.0.0.1:81")
	for range lastEphemeral - firstEphemeral + 1 {
		_, err := f.pickUp(local, one)
		require.NoError(t, err)
	}
	_, err := f.pickUp(local, one)
	require.Equal(t, provider.StatusAddrNotAvail, err)
	l := &listener{addr: local}
	require.Equal(t, provider.StatusAddrInUse, f.bind(l))
	last, err := f.pickUp(local, two)
	require.NoError(t, err)
	f.putDown(last, two)
	for c := range f.conns {
		f.putDown(c.dialer, c.listener)
	}
	require.Empty(t, f.ports)
	require.Empty(t, f.conns)
}

func TestProcessFabric(t *testing.T) {
	a, err := New(Config{})
	require.NoError(t, err)
	defer a.Close()
	b, err := New(Config{Name: "other"})
	require.NoError(t, err)
	defer b.Close()
	require.Equal(t, "emu", a.Name())
	require.Equal(t, "other", b.Name())
	connected(t, a, b)
}

func TestBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t, Config{})
		l, err := p.Listen(loopback, 2)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				_, err := p.Dial(ctx, loopback, l.Addr())
				assert.ErrorIs(t, err, context.Canceled)
			})
		}
		synctest.Wait()
		_, err = p.Dial(context.Background(), loopback, l.Addr())
		statusOf(t, provider.StatusRefused, err)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)

		cancel() // those who have given up do not count
		wg.Wait()
		go accept(l)
		e, err := p.Dial(context.Background(), loopback, l.Addr())
		require.NoError(t, err)
		e.Close()
		synctest.Wait()
		p.CutLinks()
		for _, e := range p.endpoints() {
			e.Close()
		}
	})
}

func TestReject(t *testing.T) {
	p := open(t, Config{})
	l, err := p.Listen(loopback, 1)
	require.NoError(t, err)
	reason := make([]byte, provider.MaxReject+9)
	reason[0] = 'n'
	var wg sync.WaitGroup
	wg.Go(func() {
		r, err := l.Accept()
		if !assert.NoError(t, err) {
			return
		}
		assert.Equal(t, l.Addr(), r.LocalAddr())
		assert.NoError(t, r.Reject(reason))
		reason[0] = 'x'
		assert.Error(t, r.Reject(nil))
		_, err = r.Accept(context.Background())
		assert.ErrorIs(t, err, syscall.ECONNRESET)
	})
	_, err = p.Dial(context.Background(), loopback, l.Addr())
	statusOf(t, provider.StatusRefused, err)
	wg.Wait()
	var e *provider.Error
	require.ErrorAs(t, err, &e)
	require.Len(t, e.Reason, provider.MaxReject)
	require.EqualValues(t, 'n', e.Reason[0])
	require.Equal(t, Stats{Listeners: 1}, p.Stats())
	require.Len(t, p.fabric.ports, 1)
}

func TestListenerClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t, Config{})
		l, err := p.Listen(loopback, 4)
		require.NoError(t, err)
		var wg sync.WaitGroup
		dial := func() {
			_, err := p.Dial(context.Background(), loopback, l.Addr())
			assert.ErrorIs(t, err, syscall.ECONNREFUSED)
		}
		wg.Go(dial)
		wg.Go(dial)
		synctest.Wait()
		taken, err := l.Accept()
		require.NoError(t, err)
		require.NoError(t, l.Close())
		require.NoError(t, l.Close())
		_, err = l.Accept()
		require.ErrorIs(t, err, net.ErrClosed)
		require.NoError(t, taken.Reject(nil)) // taken before, answered after
		wg.Wait()
		_, err = p.Dial(context.Background(), loopback, l.Addr())
		statusOf(t, provider.StatusNoListener, err)

		l, err = p.Listen(loopback, 1)
		require.NoError(t, err)
		for range 2 {
			wg.Go(func() {
				_, err := l.Accept()
				assert.ErrorIs(t, err, net.ErrClosed)
			})
		}
		synctest.Wait()
		l.Close()
		wg.Wait()
	})
}

func TestAcceptAfterTheDialerLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t, Config{})
		l, err := p.Listen(loopback, 1)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := p.Dial(ctx, loopback, l.Addr())
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, provider.StatusTimeout, provider.StatusOf(err))
		})
		r, err := l.Accept()
		require.NoError(t, err)
		wg.Wait()
		_, err = r.Accept(context.Background())
		statusOf(t, provider.StatusDisconnected, err)
		require.Error(t, r.Reject(nil))

		// The accepting side's own context.
		wg.Go(func() {
			_, err := p.Dial(context.Background(), loopback, l.Addr())
			statusOf(t, provider.StatusLink, err)
		})
		r, err = l.Accept()
		require.NoError(t, err)
		_, err = r.Accept(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		wg.Wait()
		require.Equal(t, Stats{Listeners: 1}, p.Stats())
	})
}

// TestDialRaces lets dialers give up while they are being accepted: nothing is left, whoever wins.
func TestDialRaces(t *testing.T) {
	p := open(t, Config{})
	l, err := p.Listen(loopback, 8)
	require.NoError(t, err)
	var wg, serving sync.WaitGroup
	serving.Go(func() {
		for {
			r, err := l.Accept()
			if err != nil {
				return
			}
			if e, err := r.Accept(context.Background()); err == nil {
				e.Close()
			}
		}
	})
	for range 2 {
		wg.Go(func() {
			for i := range 500 {
				ctx, cancel := context.WithCancel(context.Background())
				stopped := make(chan struct{})
				go func() {
					for range i % 7 {
						runtime.Gosched()
					}
					cancel()
					close(stopped)
				}()
				e, err := p.Dial(ctx, netip.AddrPort{}, l.Addr())
				if err == nil {
					e.Close()
				} else {
					assert.ErrorIs(t, err, context.Canceled)
				}
				<-stopped
			}
		})
	}
	wg.Wait()
	l.Close()
	serving.Wait()
	require.Equal(t, Stats{}, p.Stats())
	require.Empty(t, p.fabric.conns)
	require.Empty(t, p.fabric.ports)
}

func TestProviderClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fabric := NewFabric()
		p, q := open(t, Config{Fabric: fabric}), open(t, Config{Fabric: fabric})
		x, y := connected(t, p, q)
		y.receives(1, 8)
		l, err := q.Listen(loopback, 1)
		require.NoError(t, err)
		m, err := p.Listen(loopback, 1)
		require.NoError(t, err)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := p.Dial(context.Background(), loopback, l.Addr())
			assert.ErrorIs(t, err, net.ErrClosed)
		})
		synctest.Wait()
		require.NoError(t, p.Close())
		require.NoError(t, p.Close())
		wg.Wait()
		_, err = m.Accept()
		require.ErrorIs(t, err, net.ErrClosed)
		_, err = p.Listen(loopback, 1)
		require.ErrorIs(t, err, net.ErrClosed)
		_, err = p.Dial(context.Background(), loopback, l.Addr())
		require.ErrorIs(t, err, net.ErrClosed)
		x.say("lives on")
		require.Equal(t, 8, y.next().Len)
	})
}

func TestBadConfig(t *testing.T) {
	for _, c := range []Config{{MaxMessage: 255}, {MaxRecvs: -1}, {MaxSends: -1}, {MaxRDMAs: -1}, {MaxRDMA: -1}, {RDMAThreshold: -1}} {
		_, err := New(c)
		require.Error(t, err)
	}
	p := open(t, Config{MaxInline: 1 << 30, MaxMessage: 1000, Buffered: -1})
	require.Equal(t, 1000, p.Attributes().MaxInline)
	require.Zero(t, p.Attributes().Buffered)
	require.Equal(t, p.Attributes().MaxMessage, 1000)
}
