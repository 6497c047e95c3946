package sannet

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/provider"
	sanswitch "sansock/switch"
)

// TestKeepAliveOptions: Dialer and ListenConfig set up keep-alive as those of net do.
func TestKeepAliveOptions(t *testing.T) {
	sw, _ := emulated(t)
	of := func(idle, interval time.Duration, count int) net.KeepAliveConfig {
		return net.KeepAliveConfig{Enable: true, Idle: idle, Interval: interval, Count: count}
	}
	for _, c := range []struct {
		name   string
		idle   time.Duration
		config net.KeepAliveConfig
		want   net.KeepAliveConfig
	}{
		{"default", 0, net.KeepAliveConfig{}, of(15*time.Second, 15*time.Second, 9)},
		{"period", time.Minute, net.KeepAliveConfig{}, of(time.Minute, 15*time.Second, 9)},
		{"off", -1, net.KeepAliveConfig{}, systemKeepAlive},
		{"config", -1, of(3*time.Second, 2*time.Second, 1), of(3*time.Second, 2*time.Second, 1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, server := connected(t, sw, c.idle, c.config)
			assert.Equal(t, c.want, client.keepAlive)
			assert.Equal(t, c.want, server.keepAlive)
		})
	}
}

// TestPeerLost: a connection whose peer does not answer any more fails, in a Read that waits and in a Write.
func TestPeerLost(t *testing.T) {
	sw, p := emulated(t)
	for _, op := range []string{"read", "write"} {
		client, server := connected(t, sw, 0, net.KeepAliveConfig{
			Enable: true, Idle: 10 * time.Millisecond, Interval: 10 * time.Millisecond, Count: 3,
		})
		failed := make(chan error, 2)
		for _, c := range []*Conn{client, server} {
			go func() {
				var err error
				for err == nil {
					if op == "read" {
						_, err = c.Read(make([]byte, 1))
					} else {
						_, err = c.Write(make([]byte, 1<<16))
					}
				}
				failed <- err
			}()
		}
		p.DropLinks()
		for range 2 {
			select {
			case err := <-failed:
				// What a *net.TCPConn says then.
				assert.ErrorContains(t, err, ": "+op+": connection timed out")
				ne, ok := err.(net.Error)
				assert.True(t, ok && ne.Timeout())
			case <-time.After(30 * time.Second):
				t.Fatal("the loss is not noticed")
			}
		}
	}
}

// emulated returns a switch with an emulated SAN.
func emulated(t *testing.T) (*sanswitch.Switch, *emu.Provider) {
	p, err := emu.New(emu.Config{})
	require.NoError(t, err)
	sw := sanswitch.New(sanswitch.Config{Providers: []provider.Provider{p}})
	t.Cleanup(func() { sw.Close() })
	return sw, p
}

// connected returns both ends of a connection with the keep-alive options.
func connected(t *testing.T, sw *sanswitch.Switch, idle time.Duration, config net.KeepAliveConfig) (client, server *Conn) {
	lc := ListenConfig{Switch: sw, KeepAlive: idle, KeepAliveConfig: config}
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	d := Dialer{Switch: sw, KeepAlive: idle, KeepAliveConfig: config}
	c, err := d.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	s, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return c.(*Conn), s.(*Conn)
}
