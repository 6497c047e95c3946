package sanswitch

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/provider"
)

// patient is a head start that no test uses up by itself.
const patient = time.Minute

func newSwitch(t testing.TB, cfg Config, ps ...provider.Provider) *Switch {
	cfg.Providers = ps
	s := New(cfg)
	t.Cleanup(func() { s.Close() })
	return s
}

func listen(t testing.TB, s *Switch, network, address string) *Listener {
	t.Helper()
	l, err := s.Listen(t.Context(), new(net.ListenConfig), network, address)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func dial(t testing.TB, s *Switch, network, address string) Result {
	t.Helper()
	r, err := s.Dial(t.Context(), new(net.Dialer), network, address)
	require.NoError(t, err)
	t.Cleanup(func() { stream(r).Close() })
	return r
}

func accept(t testing.TB, l *Listener) Result {
	t.Helper()
	r, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { stream(r).Close() })
	return r
}

// conn is what both kinds of connection can do.
type conn interface {
	io.ReadWriteCloser
	SetDeadline(time.Time) error
}

func stream(r Result) conn {
	if r.Session != nil {
		return r.Session
	}
	return r.Conn
}

// echo sends something there and back.
func echo(t testing.TB, a, b Result) {
	t.Helper()
	for _, c := range []conn{stream(a), stream(b)} {
		require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	}
	for _, c := range []struct{ from, to conn }{{stream(a), stream(b)}, {stream(b), stream(a)}} {
		const text = "there and back"
		n, err := io.WriteString(c.from, text)
		require.NoError(t, err)
		require.Equal(t, len(text), n)
		buf := make([]byte, len(text))
		_, err = io.ReadFull(c.to, buf)
		require.NoError(t, err)
		require.Equal(t, text, string(buf))
	}
}

// assertTCP checks that r is a connection over TCP, and why.
func assertTCP(t testing.TB, r Result, why Reason) {
	t.Helper()
	assert.IsType(t, (*net.TCPConn)(nil), r.Conn)
	assert.Nil(t, r.Session)
	assert.Equal(t, PathTCP, r.Route.Path)
	assert.Equal(t, why.String(), r.Route.Reason.String())
	assert.Empty(t, r.Route.Provider)
}

func assertSAN(t testing.TB, r Result) {
	t.Helper()
	assert.Nil(t, r.Conn)
	require.NotNil(t, r.Session, "%v: %v", r.Route.Reason, r.Route.Err)
	assert.Equal(t, Route{Path: PathSAN, Provider: "emu", Reason: ReasonSAN}, r.Route)
}

// opErrorOf checks that err is an error as net has them.
func opErrorOf(t testing.TB, err error) *net.OpError {
	t.Helper()
	require.IsType(t, (*net.OpError)(nil), err)
	return err.(*net.OpError)
}

// canceled is a context that has ended.
func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func providers(ps ...provider.Provider) []provider.Provider { return ps }
