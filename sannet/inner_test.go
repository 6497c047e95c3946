package sannet_test

import (
	"bufio"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/netutil"

	"sansock/sannet"
)

// Wrappers, in the shapes that there are. Some have their methods by promotion, delegate the rest.
type (
	embedding struct{ net.Conn } // most are like it
	hidden    struct {           // embeds one whose name is not exported
		*embedding
		r *bufio.Reader
	}
	ofOurs  struct{ *sannet.Conn }
	private struct{ conn net.Conn } // delegates
	relay   struct {                // has two, of which one is its own
		backend net.Conn
		private
	}
	proxied struct { // speaks for another peer
		private
		peer net.Addr
	}
	unwrapping struct{ private }
	underlying struct{ private }
	byValue    struct {
		c net.Conn
		delegate
	}
)

// delegate is a net.Conn of which nothing is used but the addresses.
type delegate struct{ local, remote net.Addr }

func (d delegate) Read([]byte) (int, error)         { return 0, nil }
func (d delegate) Write([]byte) (int, error)        { return 0, nil }
func (d delegate) Close() error                     { return nil }
func (d delegate) LocalAddr() net.Addr              { return d.local }
func (d delegate) RemoteAddr() net.Addr             { return d.remote }
func (d delegate) SetDeadline(time.Time) error      { return nil }
func (d delegate) SetReadDeadline(time.Time) error  { return nil }
func (d delegate) SetWriteDeadline(time.Time) error { return nil }

func (p *private) Read(b []byte) (int, error)         { return p.conn.Read(b) }
func (p *private) Write(b []byte) (int, error)        { return p.conn.Write(b) }
func (p *private) Close() error                       { return p.conn.Close() }
func (p *private) LocalAddr() net.Addr                { return p.conn.LocalAddr() }
func (p *private) RemoteAddr() net.Addr               { return p.conn.RemoteAddr() }
func (p *private) SetDeadline(t time.Time) error      { return p.conn.SetDeadline(t) }
func (p *private) SetReadDeadline(t time.Time) error  { return p.conn.SetReadDeadline(t) }
func (p *private) SetWriteDeadline(t time.Time) error { return p.conn.SetWriteDeadline(t) }

func (p *proxied) RemoteAddr() net.Addr        { return p.peer }
func (p *proxied) Raw() net.Conn               { return p.conn }
func (u *unwrapping) Unwrap() net.Conn         { return u.conn }
func (u *underlying) UnderlyingConn() net.Conn { return u.conn }

// A connection is found behind whatever wraps it, over whichever path it is.
func TestInfoOfWrapped(t *testing.T) {
	other, far := net.Pipe()
	defer other.Close()
	defer far.Close()
	for _, newPath := range []func(testing.TB) path{sanPath, fallbackPath} {
		s := &script{T: t, path: newPath(t), names: new(names)}
		c, _ := s.pair()
		want, ok := sannet.InfoOf(c)
		require.True(t, ok)
		wrappers := map[string]net.Conn{
			"embedding":       embedding{c},
			"pointer":         &embedding{c},
			"twice":           &embedding{&embedding{embedding{c}}},
			"hidden":          &hidden{&embedding{c}, bufio.NewReader(c)},
			"hidden by value": hidden{&embedding{c}, nil},
			"private":         &private{c},
			"private twice":   &private{&private{c}},
			"relay":           &relay{other, private{c}},
			"proxied":         &proxied{private{c}, &net.TCPAddr{Port: 7}},
			"unwrapping":      &unwrapping{private{c}},
			"underlying":      &underlying{private{c}},
			"by value":        byValue{c: c, delegate: delegate{c.LocalAddr(), c.RemoteAddr()}},
			"TLS":             tls.Server(&private{embedding{c}}, nil),
		}
		if ours, ok := net.Conn(c).(*sannet.Conn); ok {
			wrappers["of ours"] = &ofOurs{ours}
		}
		for name, w := range wrappers {
			info, ok := sannet.InfoOf(w)
			assert.True(t, ok, name)
			assert.Equal(t, want.String(), info.String(), name)
		}
	}
}

// What is not ours, or only has to do with ours, is not taken for it.
func TestInfoOfOthers(t *testing.T) {
	s := &script{T: t, path: sanPath(t), names: new(names)}
	c, _ := s.pair()
	other, far := net.Pipe()
	defer other.Close()
	defer far.Close()
	loop := &embedding{}
	loop.Conn = loop
	for name, w := range map[string]net.Conn{
		"nil":                  nil,
		"nil of ours":          (*sannet.Conn)(nil),
		"nil of TCP":           (*net.TCPConn)(nil),
		"nil wrapper":          (*embedding)(nil),
		"zero":                 new(sannet.Conn),
		"wraps nil":            &embedding{},
		"private, wraps nil":   byValue{},
		"pipe":                 other,
		"wraps a pipe":         &embedding{other},
		"backend of a relay":   &relay{c, private{other}},
		"loop":                 loop,
		"with other addresses": byValue{c: c, delegate: delegate{c.RemoteAddr(), c.LocalAddr()}},
	} {
		info, ok := sannet.InfoOf(w)
		assert.False(t, ok, name)
		assert.Equal(t, "not a connection of sannet", info.String(), name)
	}
}

// The listeners that bound connections wrap them.
func TestInfoOfLimited(t *testing.T) {
	p := sanPath(t)
	inner, err := p.listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := netutil.LimitListener(inner, 1)
	defer l.Close()
	c, err := p.dial(t.Context(), "tcp", l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	sv, err := l.Accept()
	require.NoError(t, err)
	defer sv.Close()
	info, ok := sannet.InfoOf(sv)
	assert.True(t, ok)
	assert.Equal(t, "san via emu", info.String())
}
