package sannet_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/sannet"
	sanswitch "sansock/switch"
)

// Logs and mocks print what they are given, with any verb, while it is used: as a *net.TCPConn
// can be, without a data race, and without an end of what it is connected with.
func TestPrintWhileInUse(t *testing.T) {
	sw := newSwitch(t, true)
	l, err := listenWith(sw)("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	dialer := &sannet.Dialer{Switch: sw, Timeout: stuck}
	c, err := dialer.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	sv, err := l.Accept()
	require.NoError(t, err)
	inner, err := sw.Listen(t.Context(), new(net.ListenConfig), "tcp", "127.0.0.1:0")
	require.NoError(t, err)

	var using sync.WaitGroup
	use := func(f func()) {
		using.Go(func() {
			for range 200 {
				f()
			}
		})
	}
	b := make([]byte, 100)
	use(func() { c.Write(b) })
	use(func() { io.ReadFull(sv, make([]byte, len(b))) })
	use(func() { c.SetDeadline(time.Now().Add(stuck)) })
	use(func() { c.(*sannet.Conn).SetKeepAlivePeriod(time.Minute) })
	use(func() { l.(*sannet.Listener).SetDeadline(time.Now().Add(stuck)) })
	use(func() { inner.SetDeadline(time.Now().Add(stuck)) })
	use(func() {
		if c, err := dialer.Dial("tcp", l.Addr().String()); err == nil {
			c.Close()
		}
	})
	info, _ := sannet.InfoOf(c)
	for _, v := range []any{c, sv, l, inner, sw, dialer, *dialer, &sannet.ListenConfig{Switch: sw}, info, &info, embedding{c}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x", "%p", "%T"} {
			using.Go(func() {
				for range 20 {
					text := fmt.Sprintf(verb, v)
					assert.Less(t, len(text), 1000, "%T", v)
					assert.NotContains(t, text, "PANIC")
				}
			})
		}
	}
	using.Wait()
	c.Close()
	sv.Close()
	inner.Close()
}

// What is printed says what it is.
func TestPrint(t *testing.T) {
	s := &script{T: t, path: sanPath(t), names: new(names)}
	c, _ := s.pair()
	for _, verb := range []string{"%v", "%+v", "%s"} {
		assert.Equal(t, fmt.Sprintf("%v->%v (san via emu)", c.LocalAddr(), c.RemoteAddr()), fmt.Sprintf(verb, c))
	}
	assert.True(t, strings.HasPrefix(fmt.Sprintf("%#v", c), "&sannet.Conn{"))
	assert.Equal(t, "<nil>", fmt.Sprint((*sannet.Conn)(nil)))
	assert.Equal(t, "not connected", fmt.Sprint(new(sannet.Conn)))
	assert.NotEmpty(t, fmt.Sprint((*sannet.Listener)(nil), new(sannet.Listener), (*sanswitch.Switch)(nil)))
}
