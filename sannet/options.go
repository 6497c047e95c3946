package sannet

import (
	"net"
	"syscall"
	"time"
)

// What TCP takes for a keep-alive option that is zero, and the largest values it takes (those of Linux).
const (
	defaultKeepAliveIdle     = 15 * time.Second
	defaultKeepAliveInterval = 15 * time.Second
	defaultKeepAliveCount    = 9

	maxKeepAliveTime  = 32767 * time.Second
	maxKeepAliveCount = 127
)

// systemKeepAlive is what holds for a socket of which nothing was set (on Linux, unless the host is tuned): it counts where
// keep-alive is off at first, and turned on later, or set in part.
var systemKeepAlive = net.KeepAliveConfig{Idle: 7200 * time.Second, Interval: 75 * time.Second, Count: 9}

// SetReadBuffer sets how many received bytes may wait to be read before the peer's writes do.
func (c *Conn) SetReadBuffer(bytes int) error {
	if !c.ok() {
		return syscall.EINVAL
	}
	return c.setError(c.s.Load().SetReadBuffer(bytes))
}

// SetWriteBuffer does nothing: no more than one message of written data ever waits here.
func (c *Conn) SetWriteBuffer(bytes int) error {
	if !c.ok() {
		return syscall.EINVAL
	}
	return c.setError(c.s.Load().SetWriteBuffer(bytes))
}

// SetNoDelay does nothing: a SAN sends a write at once, and gathers small ones only while the peer has others left to read.
func (c *Conn) SetNoDelay(noDelay bool) error {
	if !c.ok() {
		return syscall.EINVAL
	}
	if c.closed.Load() {
		return c.error("set", "setsockopt", net.ErrClosed)
	}
	return nil
}

// SetLinger sets what Close does with data that the peer has not taken yet. If sec < 0, the default, it is still
// delivered, in the background. If sec == 0, it is dropped and the peer sees ECONNRESET. If sec > 0, it is delivered in
// the background too, but Close waits for that, sec seconds at most.
func (c *Conn) SetLinger(sec int) error {
	if !c.ok() {
		return syscall.EINVAL
	}
	if err := c.s.Load().SetLinger(sec); err != nil {
		return c.error("set", "setsockopt", err)
	}
	return nil
}

// SetKeepAlive turns the probing of an idle peer on or off.
func (c *Conn) SetKeepAlive(keepalive bool) error {
	return c.changeKeepAlive(func(k *net.KeepAliveConfig) error {
		k.Enable = keepalive
		return nil
	})
}

// SetKeepAlivePeriod sets how long the connection is idle before the peer is probed. Zero means 15 seconds, a negative
// period changes nothing.
func (c *Conn) SetKeepAlivePeriod(d time.Duration) error {
	return c.changeKeepAlive(func(k *net.KeepAliveConfig) error {
		return setKeepAliveTime(&k.Idle, d, defaultKeepAliveIdle)
	})
}

// SetKeepAliveConfig sets everything about probing, as for a *net.TCPConn: zero fields mean the default, negative
// ones change nothing.
func (c *Conn) SetKeepAliveConfig(config net.KeepAliveConfig) error {
	return c.changeKeepAlive(func(k *net.KeepAliveConfig) error {
		k.Enable = config.Enable
		if err := setKeepAliveTime(&k.Idle, config.Idle, defaultKeepAliveIdle); err != nil {
			return err
		}
		if err := setKeepAliveTime(&k.Interval, config.Interval, defaultKeepAliveInterval); err != nil {
			return err
		}
		switch n := config.Count; {
		case n > maxKeepAliveCount:
			return syscall.EINVAL
		case n == 0:
			k.Count = defaultKeepAliveCount
		case n > 0:
			k.Count = n
		}
		return nil
	})
}

func setKeepAliveTime(to *time.Duration, d, zero time.Duration) error {
	switch {
	case d > maxKeepAliveTime:
		return syscall.EINVAL
	case d == 0:
		*to = zero
	case d > 0:
		*to = d
	}
	return nil
}

// changeKeepAlive applies change, which keeps what it changed before an error, and tells the session.
func (c *Conn) changeKeepAlive(change func(*net.KeepAliveConfig) error) error {
	if !c.ok() {
		return syscall.EINVAL
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	err := change(&c.keepAlive)
	k := c.keepAlive
	if !k.Enable {
		k.Idle = 0
	}
	// The session's error comes first, as it is that of a closed connection.
	if serr := c.s.Load().SetKeepAlive(k.Idle, k.Interval, k.Count); serr != nil {
		err = serr
	}
	if err != nil {
		return c.error("set", "setsockopt", err)
	}
	return nil
}
