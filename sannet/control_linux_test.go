package sannet_test

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/sannet"
)

// TestControl: a Control function does not keep a connection from the SAN, unless what it sets does.
func TestControl(t *testing.T) {
	sw := newSwitch(t, true)
	l, err := listenWith(sw)("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	value := 0 // of SO_PRIORITY, which is that already
	d := sannet.Dialer{Switch: sw, Control: func(_, _ string, c syscall.RawConn) (err error) {
		cerr := c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_PRIORITY, value)
		})
		require.NoError(t, cerr)
		return err
	}}
	for _, want := range []string{"san via emu", "tcp: Control function set (SO_PRIORITY)"} {
		c, err := d.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		defer c.Close()
		info, ok := sannet.InfoOf(c)
		assert.True(t, ok)
		assert.Equal(t, want, info.String())
		value = 3
	}
	lc := sannet.ListenConfig{Switch: sw, Control: d.Control}
	over := func(l net.Listener) string {
		c, err := (&sannet.Dialer{Switch: sw}).Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		defer c.Close()
		info, _ := sannet.InfoOf(c)
		return info.Path.String()
	}
	for want, priority := range map[string]int{"san": 0, "tcp": 3} {
		value = priority
		l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		assert.Equal(t, want, over(l))
	}
}
