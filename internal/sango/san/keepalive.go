//go:build linux

package san

import (
	"net"
	"syscall"
	"time"

	"sansock/internal/probe"
	sanswitch "sansock/switch"
)

var errClosed = net.ErrClosed

// The largest values that TCP takes.
const (
	maxKeepAliveTime  = 32767 * time.Second
	maxKeepAliveCount = 127
)

// SetKeepAlive turns keep-alive on or off.
func (c *Conn) SetKeepAlive(on bool) error {
	return c.changeKeepAlive(func(k *probe.KeepAlive) { k.Enable = on })
}

// SetKeepAliveIdle sets TCP_KEEPIDLE.
func (c *Conn) SetKeepAliveIdle(d time.Duration) error {
	if d < time.Second || d > maxKeepAliveTime {
		return syscall.EINVAL
	}
	return c.changeKeepAlive(func(k *probe.KeepAlive) { k.Idle = d })
}

// SetKeepAliveInterval sets TCP_KEEPINTVL.
func (c *Conn) SetKeepAliveInterval(d time.Duration) error {
	if d < time.Second || d > maxKeepAliveTime {
		return syscall.EINVAL
	}
	return c.changeKeepAlive(func(k *probe.KeepAlive) { k.Interval = d })
}

// SetKeepAliveCount sets TCP_KEEPCNT.
func (c *Conn) SetKeepAliveCount(n int) error {
	if n < 1 || n > maxKeepAliveCount {
		return syscall.EINVAL
	}
	return c.changeKeepAlive(func(k *probe.KeepAlive) { k.Count = n })
}

func (c *Conn) changeKeepAlive(change func(*probe.KeepAlive)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == closed {
		return errClosed
	}
	change(&c.keepAlive)
	if c.socket >= 0 {
		c.keepAlive.Set(c.socket)
	}
	return c.applyKeepAlive()
}

// applyKeepAlive tells the session. It needs mu.
func (c *Conn) applyKeepAlive() error {
	k := c.keepAlive
	if !k.Enable {
		k.Idle = 0
	}
	return c.s.SetKeepAlive(k.Idle, k.Interval, sanswitch.Probes(k))
}
