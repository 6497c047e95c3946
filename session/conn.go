package session

import (
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sansock/provider"
	"sansock/session/regcache"
)

// Conn is one end of a session: a reliable stream each way. Its methods may be called from any goroutine; Reads are
// served one after the other, and so are Writes, each of which is contiguous in the stream.
//
// Errors are bare: io.EOF, os.ErrDeadlineExceeded, net.ErrClosed, syscall.ECONNRESET, EPIPE, ETIMEDOUT, or an error
// that is ErrProtocol.
type Conn struct {
	// mu is held by whoever uses the core, but not while waiting, or while RDMA copies: rd and wr each belong to one
	// Read and one Write meanwhile. The provider's functions are called with mu held, except for RDMA. So the wake
	// function, which a provider calls from anywhere, must not wait for it.
	//
	// Lock order: mu is above the provider's locks, and those of regcache.
	mu   sync.Mutex
	core core
	ep   provider.Endpoint

	spinner       provider.Spinner // nil: the provider has none
	local, remote netip.AddrPort   // never changed once the Conn is in use

	rd, wr side                   // of Reads, the one that holds its lock sees to what arrives; of Writes
	urgent struct{ in, out gate } // of ReadUrgent, and of WriteUrgent
	missed atomic.Bool            // a wake-up came while mu was held
	kicks  atomic.Uint32          // requests for progress; a goroutine runs while not 0
	kicked func()                 // progress, made once; of who has made kicks 1

	closed   atomic.Bool
	epClosed bool
	pending  bool          // nobody has accepted it yet, see Accepted
	linger   int           // SetLinger; -1: default
	over     chan struct{} // closed when the endpoint is; nil unless Close waits for it
	timers   timers
	tuner    tuner
	move     mover
}

func newConn(ep provider.Endpoint, cfg Config) *Conn {
	c := &Conn{ep: ep, local: ep.LocalAddr(), remote: ep.RemoteAddr(), linger: -1}
	c.move.init(cfg)
	c.rd.init()
	c.wr.init()
	a := ep.Attributes()
	c.core.readBuffer = cfg.ReadBuffer
	c.core.line = newLine(ep, a)
	c.core.threshold = max(cfg.Threshold, 0)
	if cfg.Threshold == 0 {
		c.core.threshold = max(a.RDMAThreshold, 0)
		c.tuner.base = a.RDMAThreshold
	}
	if cfg.CacheBytes == 0 {
		cfg.CacheBytes = DefaultCacheBytes
	}
	if cfg.CacheBytes > 0 {
		c.core.cache = regcache.Limits{Entries: cacheEntries, Bytes: cfg.CacheBytes}
	}
	if cfg.Provider == nil {
		c.core.offers &^= featureHandover
	}
	c.spinner = extension[provider.Spinner](ep, provider.GUIDSpinner)
	c.sleepIn(ep)
	return c
}

// sleepIn lets Reads and Writes sleep in the provider, where it has places for that.
func (c *Conn) sleepIn(ep provider.Endpoint) {
	var p *provider.Sleeper
	if s := extension[provider.Sleeper](ep, provider.GUIDSleeper); s != nil {
		p = &s
	}
	c.rd.sleeper.Store(p)
	c.wr.sleeper.Store(p)
}

// started ends the negotiation, during which mu is held.
func (c *Conn) started() {
	c.core.poll()
	c.unlock()
}

// discard drops a connection whose negotiation failed, likewise.
func (c *Conn) discard() {
	defer c.mu.Unlock()
	c.closed.Store(true)
	c.core.life = lifeDone
	c.core.err = net.ErrClosed // what the peer had sent behind is not looked at
	c.epClosed = true
	c.ep.Close()
	c.core.poll()
	c.core.finish()
}

// closing is the error of a Read or Write: on a connection that has been closed meanwhile it is that, whatever became of
// the endpoint.
func (c *Conn) closing(err error) error {
	if err != nil && c.closed.Load() {
		return net.ErrClosed
	}
	return err
}

// start is the error with which a Read or Write fails before it begins, or goes on.
func (c *Conn) start(s *side) error {
	switch {
	case c.closed.Load():
		return net.ErrClosed
	case s.deadline.expired():
		return os.ErrDeadlineExceeded
	}
	return nil
}

// markUnread notes for the end of this process what is unread, and whether it is to be a reset anyhow. It needs mu.
func (c *Conn) markUnread() { c.core.markUnread(c.linger == 0 || c.pending) }

// canFast reports that nothing but bytes of the stream has to be looked after. It needs mu.
func (c *Conn) canFast() bool {
	return c.core.canFast() && c.urgent.in.n == 0 && c.urgent.out.n == 0
}

// revokeTimeout is how long a peer may take to give memory back before that costs the connection.
const revokeTimeout = 5 * time.Second

// revoke waits until over reports that the memory is free. A peer that does not answer in time loses the connection,
// as closing the endpoint is the one way left to make sure that nobody uses the memory. It needs mu.
func (c *Conn) revoke(w *waiter, over func() bool) {
	var limit deadline
	limit.set(time.Now().Add(revokeTimeout))
	defer limit.stop()
	if c.sleepUntil(w, &limit, over); !over() {
		c.core.fail(syscall.ETIMEDOUT, abortTimeout)
		c.closeEndpoint()
	}
}

// LocalAddr is the address of this end, RemoteAddr that of the peer. A hand-over does not change them.
func (c *Conn) LocalAddr() netip.AddrPort  { return c.local }
func (c *Conn) RemoteAddr() netip.AddrPort { return c.remote }

// Accepted says that the application has the connection, which came from Opening.Advance. Until then the end of this
// process resets it, as a kernel resets what nobody has accepted.
func (c *Conn) Accepted() {
	c.lock()
	c.pending = false
	c.unlock()
}

// PeerGone reports whether the peer's end is known to be gone: it has closed, or its process, or the link, has ended.
// Nobody reads what is written from then on.
func (c *Conn) PeerGone() bool {
	c.lock()
	defer c.unlock()
	if !c.epClosed {
		c.core.poll()
	}
	return c.core.peer != peerThere
}

// Stats returns what the session has done so far.
func (c *Conn) Stats() Stats {
	c.lock()
	defer c.unlock() // also here: a wake-up may have found mu held
	return c.core.statistics()
}

// SetDeadline sets the read and the write deadline.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline sets when Reads, also one that waits, fail with os.ErrDeadlineExceeded. Zero: never.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.rd, t) }

// SetWriteDeadline sets when Writes, also one that waits, fail with os.ErrDeadlineExceeded. Zero: never.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.wr, t) }

// TakeDeadlines gives c, which nobody uses yet, the deadlines of old.
func (c *Conn) TakeDeadlines(old *Conn) {
	c.rd.deadline.at.Store(old.rd.deadline.at.Load())
	c.wr.deadline.at.Store(old.wr.deadline.at.Load())
}

func (c *Conn) setDeadline(s *side, t time.Time) error {
	if c.closed.Load() {
		return net.ErrClosed
	}
	s.deadline.set(t)
	s.wake() // it looks at the deadline anew
	return nil
}

// minReadBuffer is the smallest receive buffer.
const minReadBuffer = 4 << 10

// SetReadBuffer bounds the bytes that are kept while nobody reads, beyond the posted receive buffers. As with a
// socket, what is too small is taken for the smallest size.
func (c *Conn) SetReadBuffer(n int) error {
	c.lock()
	defer c.unlock()
	if c.closed.Load() {
		return net.ErrClosed
	}
	c.core.readBuffer, c.core.full = max(n, minReadBuffer), false
	return nil
}

// SetWriteBuffer does nothing: a session keeps no written data.
func (c *Conn) SetWriteBuffer(n int) error {
	if c.closed.Load() {
		return net.ErrClosed
	}
	return nil
}

// SetLinger sets what Close does while written data is not delivered: sec < 0 (the default) delivers it in
// the background, 0 drops the connection, so that the peer sees ECONNRESET, and with a positive sec Close waits that
// many seconds at most for what is delivered in the background, as on Linux.
func (c *Conn) SetLinger(sec int) error {
	c.lock()
	defer c.unlock()
	if c.closed.Load() {
		return net.ErrClosed
	}
	c.linger = max(sec, -1)
	return nil
}
