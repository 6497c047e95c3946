package sanswitch

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/provider"
)

// controls notes the calls of a Control function.
type controls struct {
	mu    sync.Mutex
	calls []string

	// also, if not nil, is called with the address.
	also func(address string, c syscall.RawConn) error
}

func (n *controls) control(_ context.Context, network, address string, c syscall.RawConn) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	call := network + " " + address
	err := c.Control(func(fd uintptr) {
		domain, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, 39) // SO_DOMAIN
		if err != nil || (domain == syscall.AF_INET6) != (network == "tcp6") {
			call += ": not with a socket of that family"
		}
	})
	n.calls = append(n.calls, call)
	if err == nil && n.also != nil {
		err = n.also(address, c)
	}
	return err
}

// take returns the calls since the last time.
func (n *controls) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	calls := append([]string{}, n.calls...)
	n.calls = nil
	return calls
}

// loopbacks is a provider for this host's addresses alone, whatever others there are.
func loopbacks(t *testing.T) *faulty {
	return newFaulty(t, emu.Config{Prefixes: func() ([]netip.Prefix, error) {
		return []netip.Prefix{
			netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("::1/128"),
		}, nil
	}})
}

// The function sees what that of a net.Dialer sees: the same addresses, in order, each once, and
// sockets of the same family. The error of the dial is the same, too.
func TestControlAsNet(t *testing.T) {
	needIPv6(t)
	s := newSwitch(t, Config{HeadStart: patient}, loopbacks(t))
	san, tcp := listen(t, s, "tcp", "127.0.0.3:0"), plainAt(t, "tcp", "127.0.0.3:0")
	go func() {
		for {
			r, err := san.Accept()
			if err != nil {
				return
			}
			defer stream(r).Close()
		}
	}()
	onSAN, onTCP := portOf(san.Addr()), portOf(tcp.Addr())
	any6 := portOf(listen(t, s, "tcp6", "[::]:0").Addr())
	closed := portOf(mustAddr(t, closedPort(t)))
	names := resolver(t, "some.test", "127.0.0.2", "127.0.0.3", "::1")
	forbidden := errors.New("not there")
	forbid := func(hosts ...string) func(string, syscall.RawConn) error {
		return func(address string, _ syscall.RawConn) error {
			for _, h := range hosts {
				if host, _, _ := net.SplitHostPort(address); host == h {
					return forbidden
				}
			}
			return nil
		}
	}
	for _, c := range []struct {
		name, network, address string
		local                  net.IP
		also                   func(address string, c syscall.RawConn) error
		path                   Path // 0: it fails
	}{
		{"SAN", "tcp", "127.0.0.3:" + onSAN, nil, nil, PathSAN},
		{"TCP", "tcp", "127.0.0.3:" + onTCP, nil, nil, PathTCP},
		{"closed", "tcp", "127.0.0.3:" + closed, nil, nil, 0},
		{"closed", "tcp6", "[::1]:" + closed, nil, nil, 0},
		{"name, SAN", "tcp4", "some.test:" + onSAN, nil, nil, PathSAN},
		{"name, TCP", "tcp4", "some.test:" + onTCP, nil, nil, PathTCP},
		{"name, closed", "tcp4", "some.test:" + closed, nil, nil, 0},
		{"first forbidden", "tcp4", "some.test:" + onSAN, nil, forbid("127.0.0.2"), PathSAN},
		{"first forbidden", "tcp4", "some.test:" + onTCP, nil, forbid("127.0.0.2"), PathTCP},
		{"all forbidden", "tcp4", "some.test:" + onSAN, nil, forbid("127.0.0.2", "127.0.0.3"), 0},
		{"it alone forbidden", "tcp4", "127.0.0.3:" + onSAN, nil, forbid("127.0.0.3"), 0},
		{"unspecified, closed", "tcp", ":" + closed, nil, nil, 0},
		{"unspecified", "tcp6", ":" + any6, nil, nil, PathSAN},
		{"unspecified of IPv6, closed", "tcp", "[::]:" + closed, nil, nil, 0},
		{"mapped", "tcp", "[::ffff:127.0.0.3]:" + onSAN, nil, nil, PathSAN},
		{"from any of IPv6", "tcp", "127.0.0.3:" + onTCP, net.IPv6unspecified, nil, PathTCP},
		{"from any of IPv6", "tcp", "127.0.0.3:" + onSAN, net.IPv6unspecified, nil, PathSAN},
	} {
		t.Run(c.name+" "+c.network, func(t *testing.T) {
			n := &controls{also: c.also}
			d := &net.Dialer{Resolver: names, ControlContext: n.control, FallbackDelay: patient}
			if c.local != nil {
				d.LocalAddr = &net.TCPAddr{IP: c.local}
			}
			conn, wantErr := d.DialContext(t.Context(), c.network, c.address)
			if wantErr == nil {
				conn.Close()
			}
			want := n.take()
			r, err := s.Dial(t.Context(), d, c.network, c.address)
			if c.path == 0 {
				assertSameError(t, wantErr, err)
			} else {
				require.NoError(t, err)
				defer stream(r).Close()
				assert.Equal(t, c.path, r.Route.Path, "%v", r.Route)
			}
			assert.Equal(t, want, n.take())
		})
	}
}

// An address that the function leaves to TCP does not keep the others from the SAN, and one over
// TCP has the reason.
func TestControlOfNames(t *testing.T) {
	s := newSwitch(t, Config{HeadStart: patient}, loopbacks(t))
	l := listen(t, s, "tcp", "127.0.0.3:0")
	port := portOf(l.Addr())
	mark := func(marked string) *controls {
		return &controls{also: func(address string, c syscall.RawConn) error {
			if host, _, _ := net.SplitHostPort(address); marked != "" && host != marked {
				return nil
			}
			return setting(syscall.SOL_SOCKET, syscall.SO_PRIORITY, 3)("", "", c)
		}}
	}
	dial := func(n *controls, network string) (Result, error) {
		d := &net.Dialer{
			Resolver:       resolver(t, "two.test", "127.0.0.2", "127.0.0.3"),
			ControlContext: n.control,
		}
		r, err := s.Dial(t.Context(), d, network, "two.test:"+port)
		if err == nil {
			t.Cleanup(func() { stream(r).Close() })
		}
		return r, err
	}
	both := []string{"tcp4 127.0.0.2:" + port, "tcp4 127.0.0.3:" + port}
	for _, network := range []string{"tcp", "san"} {
		n := mark("127.0.0.2")
		r, err := dial(n, network)
		require.NoError(t, err)
		assertSAN(t, r)
		assert.Equal(t, both, n.take())
		accept(t, l)
	}
	n := mark("")
	r, err := dial(n, "tcp")
	require.NoError(t, err)
	assertTCP(t, r, ReasonControl)
	assert.EqualError(t, r.Route.Err, "SO_PRIORITY")
	assert.Equal(t, both, n.take())
	accept(t, l)

	_, err = dial(n, "san")
	assert.ErrorIs(t, err, errControl)
	assert.Equal(t, both, n.take())
}

// TCP, where it comes first, has the function called, and the SAN does not do so again.
func TestControlInARace(t *testing.T) {
	f := loopbacks(t)
	s := newSwitch(t, Config{HeadStart: 1}, f)
	ln := plainAt(t, "tcp", "127.0.0.3:0")
	f.On.Dial = func(ctx context.Context, _, _ netip.AddrPort) (provider.Endpoint, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for range 20 {
		n := &controls{}
		r, err := s.Dial(t.Context(), &net.Dialer{ControlContext: n.control}, "tcp", ln.Addr().String())
		require.NoError(t, err)
		r.Conn.Close()
		assert.Equal(t, []string{"tcp4 " + ln.Addr().String()}, n.take())
		s.negatives.won(netip.MustParseAddrPort(ln.Addr().String()))
	}
}

// With Multipath TCP the socket is of another kind, which the function is to see.
func TestControlMultipath(t *testing.T) {
	s := newSwitch(t, Config{HeadStart: patient}, loopbacks(t))
	var lc net.ListenConfig
	lc.SetMultipathTCP(true)
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.3:0")
	require.NoError(t, err)
	defer ln.Close()
	n := &controls{}
	d := &net.Dialer{ControlContext: n.control}
	d.SetMultipathTCP(true)
	c, err := d.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	want, err := c.(*net.TCPConn).MultipathTCP()
	require.NoError(t, err)
	r, err := s.Dial(t.Context(), d, "tcp", ln.Addr().String())
	require.NoError(t, err)
	defer r.Conn.Close()
	got, err := r.Conn.(*net.TCPConn).MultipathTCP()
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

// A dial that is over has closed the sockets that it has shown.
func TestControlLeavesNothing(t *testing.T) {
	s := newSwitch(t, Config{HeadStart: patient}, loopbacks(t))
	l := listen(t, s, "tcp", "127.0.0.3:0")
	closed := closedPort(t)
	n := &controls{}
	d := &net.Dialer{ControlContext: n.control}
	once := func() {
		r, err := s.Dial(t.Context(), d, "tcp", l.Addr().String())
		require.NoError(t, err)
		assertSAN(t, r)
		r.Session.Close()
		stream(accept(t, l)).Close()
		_, err = s.Dial(t.Context(), d, "tcp", closed)
		require.Error(t, err)
		n.also = func(string, syscall.RawConn) error { return errors.New("not there") }
		_, err = s.Dial(t.Context(), d, "tcp", l.Addr().String())
		require.Error(t, err)
		n.also = nil
	}
	once()
	before := descriptors(t)
	for range 10 {
		once()
	}
	assert.Equal(t, before, descriptors(t))
}
