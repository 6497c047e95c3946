package sannet

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestKeepAliveLikeTCP compares the settings of a Conn with those of a socket, step by step.
func TestKeepAliveLikeTCP(t *testing.T) {
	for name, want := range map[string]string{"time": "7200", "intvl": "75", "probes": "9"} {
		got, err := os.ReadFile("/proc/sys/net/ipv4/tcp_keepalive_" + name)
		if err != nil || strings.TrimSpace(string(got)) != want {
			t.Skipf("this host has a setting of its own: %s %s", name, got)
		}
	}
	sw, _ := emulated(t)
	of := func(enable bool, idle, interval time.Duration, count int) net.KeepAliveConfig {
		return net.KeepAliveConfig{Enable: enable, Idle: idle, Interval: interval, Count: count}
	}
	for _, start := range []struct {
		name   string
		idle   time.Duration
		config net.KeepAliveConfig
	}{
		{"default", 0, net.KeepAliveConfig{}},
		{"off", -1, net.KeepAliveConfig{}},
		{"off but configured", -1, of(false, time.Second, time.Second, 1)},
		{"configured in part", -1, of(true, -1, 3*time.Second, -1)},
	} {
		t.Run(start.name, func(t *testing.T) {
			san, _ := connected(t, sw, start.idle, start.config)
			lc := net.ListenConfig{KeepAlive: start.idle, KeepAliveConfig: start.config}
			l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer l.Close()
			nd := net.Dialer{KeepAlive: start.idle, KeepAliveConfig: start.config}
			c, err := nd.Dial("tcp", l.Addr().String())
			require.NoError(t, err)
			defer c.Close()
			tcp := c.(*net.TCPConn)
			assert.Equal(t, socketKeepAlive(t, tcp), san.keepAlive, "at first")
			for _, step := range []struct {
				name string
				set  func(keepAliver) error
			}{
				{"on", func(c keepAliver) error { return c.SetKeepAlive(true) }},
				{"off", func(c keepAliver) error { return c.SetKeepAlive(false) }},
				{"period unchanged", func(c keepAliver) error { return c.SetKeepAlivePeriod(-1) }},
				{"period", func(c keepAliver) error { return c.SetKeepAlivePeriod(2 * time.Second) }},
				{"on, unchanged", func(c keepAliver) error { return c.SetKeepAliveConfig(of(true, -1, -1, -1)) }},
				{"rounded up", func(c keepAliver) error { return c.SetKeepAlivePeriod(1500 * time.Millisecond) }},
				{"part of it wrong", func(c keepAliver) error { return c.SetKeepAliveConfig(of(true, time.Minute, -1, 1000)) }},
				{"off, but changed", func(c keepAliver) error { return c.SetKeepAliveConfig(of(false, 5*time.Second, -1, 3)) }},
				{"defaults", func(c keepAliver) error { return c.SetKeepAliveConfig(of(true, 0, 0, 0)) }},
			} {
				assert.Equal(t, step.set(tcp) == nil, step.set(san) == nil, step.name)
				got := san.keepAlive
				got.Idle = (got.Idle + time.Second - 1).Truncate(time.Second) // all that a socket can do
				assert.Equal(t, socketKeepAlive(t, tcp), got, step.name)
			}
		})
	}
}

type keepAliver interface {
	SetKeepAlive(bool) error
	SetKeepAlivePeriod(time.Duration) error
	SetKeepAliveConfig(net.KeepAliveConfig) error
}

func socketKeepAlive(t *testing.T, c *net.TCPConn) (k net.KeepAliveConfig) {
	raw, err := c.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		get := func(level, opt int) int {
			n, err := unix.GetsockoptInt(int(fd), level, opt)
			assert.NoError(t, err)
			return n
		}
		k.Enable = get(unix.SOL_SOCKET, unix.SO_KEEPALIVE) == 1
		k.Idle = time.Duration(get(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE)) * time.Second
		k.Interval = time.Duration(get(unix.IPPROTO_TCP, unix.TCP_KEEPINTVL)) * time.Second
		k.Count = get(unix.IPPROTO_TCP, unix.TCP_KEEPCNT)
	}))
	return k
}
