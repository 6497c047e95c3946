package sanswitch

import (
	"context"
	"fmt"
	"net"
	"net/http/httptrace"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/provider"
)

// traced returns the hooks that f calls, in order, as text.
func traced(t *testing.T, f func(ctx context.Context)) []string {
	var mu sync.Mutex
	events := []string{}
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, fmt.Sprintf(format, args...))
	}
	f(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		DNSStart:     func(i httptrace.DNSStartInfo) { note("DNSStart %s", i.Host) },
		DNSDone:      func(i httptrace.DNSDoneInfo) { note("DNSDone %v %v", i.Addrs, i.Err) },
		ConnectStart: func(network, addr string) { note("ConnectStart %s %s", network, addr) },
		ConnectDone:  func(network, addr string, err error) { note("ConnectDone %s %s %v", network, addr, err) },
	}))
	mu.Lock()
	defer mu.Unlock()
	return append([]string{}, events...)
}

// The hooks of httptrace are called as by net.Dialer: for look-ups, and once for every address
// that is dialed, over whichever path.
func TestTrace(t *testing.T) {
	needIPv6(t)
	f := newFaulty(t, emu.Config{Prefixes: func() ([]netip.Prefix, error) {
		return []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("::1/128")}, nil
	}})
	s := newSwitch(t, Config{HeadStart: patient}, f)
	san := listen(t, s, "tcp", "127.0.0.3:0")
	go func() {
		for {
			r, err := san.Accept()
			if err != nil {
				return
			}
			defer stream(r).Close()
		}
	}()
	onSAN, onTCP := portOf(san.Addr()), portOf(plainAt(t, "tcp", "127.0.0.3:0").Addr())
	closed := portOf(mustAddr(t, closedPort(t)))
	names := resolver(t, "some.test", "127.0.0.2", "127.0.0.3", "::1")
	one := resolver(t, "one.test", "127.0.0.3")
	for i, c := range []struct {
		network, address string
		d                net.Dialer
	}{
		{"tcp", "127.0.0.3:" + onSAN, net.Dialer{}},
		{"tcp", "127.0.0.3:" + onTCP, net.Dialer{}},
		{"tcp4", "127.0.0.3:" + closed, net.Dialer{}},
		{"tcp", "one.test:" + onSAN, net.Dialer{Resolver: one}},
		{"tcp", "one.test:" + onTCP, net.Dialer{Resolver: one}},
		{"tcp", "none.test:" + onTCP, net.Dialer{Resolver: one}},
		{"tcp4", "some.test:" + onSAN, net.Dialer{Resolver: names}},
		{"tcp4", "some.test:" + onTCP, net.Dialer{Resolver: names}},
		{"tcp4", "some.test:" + closed, net.Dialer{Resolver: names}},
		{"tcp", "some.test:" + closed, net.Dialer{Resolver: names, FallbackDelay: -1}},
		{"tcp", "some.test:" + onTCP, net.Dialer{Resolver: names, FallbackDelay: -1}},
		{"tcp6", "some.test:" + onTCP, net.Dialer{Resolver: names}},
		{"tcp", "127.0.0.3:" + onTCP, net.Dialer{Timeout: -1}},
		{"tcp", ":" + closed, net.Dialer{}},
		{"tcp", "", net.Dialer{}},
		{"bogus", "127.0.0.3:" + onTCP, net.Dialer{}},
	} {
		t.Run(fmt.Sprint(i, " ", c.network, " ", c.address), func(t *testing.T) {
			want := traced(t, func(ctx context.Context) {
				if conn, err := c.d.DialContext(ctx, c.network, c.address); err == nil {
					conn.Close()
				}
			})
			got := traced(t, func(ctx context.Context) {
				if r, err := s.Dial(ctx, &c.d, c.network, c.address); err == nil {
					stream(r).Close()
				}
			})
			assert.Equal(t, inPairs(want), inPairs(got))
		})
	}
}

// inPairs sorts the ends of dials to their starts, and drops what an error says beyond its being
// one. An address that was asked over the SAN is open until it is known that TCP is not wanted
// there.
func inPairs(events []string) []string {
	pairs := []string{}
	for _, e := range events {
		if !strings.HasPrefix(e, "ConnectDone") {
			pairs = append(pairs, e)
		}
	}
	for i, p := range pairs {
		start, isStart := strings.CutPrefix(p, "ConnectStart ")
		for _, e := range events {
			if end, ok := strings.CutPrefix(e, "ConnectDone "+start); ok && isStart {
				if strings.Contains(end, "connection refused (") {
					end, _, _ = strings.Cut(end, " (")
				}
				pairs[i] += " ->" + end
			}
		}
	}
	return pairs
}

// On the SAN alone, too.
func TestTraceSANOnly(t *testing.T) {
	f := newFaulty(t, emu.Config{})
	s := newSwitch(t, Config{HeadStart: patient}, f)
	l := listen(t, s, "san", "127.0.0.3:0")
	d := &net.Dialer{Resolver: resolver(t, "some.test", "127.0.0.2", "127.0.0.3")}
	port := portOf(l.Addr())
	got := traced(t, func(ctx context.Context) {
		r, err := s.Dial(ctx, d, "san", "some.test:"+port)
		require.NoError(t, err)
		r.Session.Close()
	})
	assert.Equal(t, []string{
		"DNSStart some.test",
		"DNSDone [{127.0.0.2 } {127.0.0.3 }] <nil>",
		"ConnectStart san 127.0.0.2:" + port,
		"ConnectDone san 127.0.0.2:" + port + " dial san 127.0.0.2:" + port + ": connect: connection refused (emu: dial: no listener on the SAN)",
		"ConnectStart san 127.0.0.3:" + port,
		"ConnectDone san 127.0.0.3:" + port + " <nil>",
	}, got)
}

// What is called off has an end, too, and only one.
func TestTraceCalledOff(t *testing.T) {
	f := newFaulty(t, emu.Config{})
	f.On.Dial = func(ctx context.Context, local, remote netip.AddrPort) (provider.Endpoint, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s := newSwitch(t, Config{HeadStart: time.Millisecond, NegativeTTL: -1}, f)
	address := plainAt(t, "tcp", "127.0.0.1:0").Addr().String()
	for range 3 {
		assert.Equal(t, []string{"ConnectStart tcp " + address, "ConnectDone tcp " + address + " <nil>"},
			traced(t, func(ctx context.Context) {
				r, err := s.Dial(ctx, new(net.Dialer), "tcp", address)
				require.NoError(t, err)
				r.Conn.Close()
			}))
	}
	s = newSwitch(t, Config{HeadStart: patient}, f)
	got := traced(t, func(ctx context.Context) {
		_, err := s.Dial(ctx, &net.Dialer{Timeout: time.Millisecond}, "san", address)
		require.Error(t, err)
	})
	assert.Equal(t, []string{"ConnectStart san " + address, "ConnectDone san " + address + " dial san " + address + ": i/o timeout"}, got)

	d := &net.Dialer{Resolver: resolver(t, "two.test", "127.0.0.1", "127.0.0.2")}
	ctx, cancel := context.WithCancel(t.Context())
	inside := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{ConnectStart: func(string, string) { cancel() }})
	_, err := s.Dial(inside, d, "tcp", "two.test:80")
	assert.ErrorIs(t, err, context.Canceled)
}

// A hook that a Resolver's own dials would call is not called for them, as net does not.
func TestTraceOfLookUp(t *testing.T) {
	dns := newDNSServer(t, "one.test", "127.0.0.1")
	s := newSwitch(t, Config{HeadStart: patient}, newFaulty(t, emu.Config{}))
	port := portOf(mustAddr(t, closedPort(t)))
	got := traced(t, func(ctx context.Context) {
		_, err := s.Dial(ctx, dns.dialer(), "tcp", "one.test:"+port)
		require.Error(t, err)
	})
	assert.Equal(t, []string{
		"DNSStart one.test", "DNSDone [{127.0.0.1 }] <nil>", "ConnectStart tcp 127.0.0.1:" + port,
		"ConnectDone tcp 127.0.0.1:" + port + " dial tcp 127.0.0.1:" + port + ": connect: connection refused",
	}, got)
}

// Who does not trace pays next to nothing, and hooks do not need all of their kind.
func TestTraceInPart(t *testing.T) {
	s := newSwitch(t, Config{HeadStart: patient}, newFaulty(t, emu.Config{}))
	l := listen(t, s, "tcp", "127.0.0.1:0")
	got := 0
	for _, hooks := range []*httptrace.ClientTrace{
		{ConnectStart: func(string, string) { got++ }},
		{ConnectDone: func(string, string, error) { got++ }},
		{},
	} {
		r, err := s.Dial(httptrace.WithClientTrace(t.Context(), hooks), new(net.Dialer), "tcp", l.Addr().String())
		require.NoError(t, err)
		assertSAN(t, r)
		r.Session.Close()
		accept(t, l)
	}
	assert.Equal(t, 2, got)
	ctx := t.Context()
	assert.Zero(t, testing.AllocsPerRun(100, func() { newTracer(ctx, "tcp") }))
}
