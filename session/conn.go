// Package session is the session protocol: it makes a reliable stream each way of a connection that carries messages
// and RDMA transfers, package provider's Endpoint. It brings what an application expects of a socket and a SAN does not
// have: flow control by credits, buffering, deadlines, half-close, linger and keep-alive. It moves large writes by RDMA.
// Negotiate makes a Conn of an endpoint. docs/protocol.md says what goes over the wire, docs/architecture.md how a Read
// and a Write go through the files.
//
// A Conn's methods drive the protocol themselves, in the goroutine of their caller; others run only while something has
// to go on without one.
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
	// Lock order: mu, then the provider's locks, then those of regcache.
	mu   sync.Mutex
	core core
	ep   provider.Endpoint

	spinner provider.Spinner // nil: the provider has none

	rd, wr    side          // of Reads, the one that holds its lock sees to what arrives; of Writes
	urgentIn  gate          // of ReadUrgent
	urgentOut gate          // of WriteUrgent
	missed    atomic.Bool   // a wake-up came while mu was held
	kicks     atomic.Uint32 // requests for progress; a goroutine runs while not 0

	closed   atomic.Bool
	epClosed bool
	linger   int           // SetLinger; -1: default
	over     chan struct{} // closed when the endpoint is; nil unless Close waits for it
	timers   timers
	tuner    tuner
	move     mover
}

func newConn(ep provider.Endpoint, cfg Config) *Conn {
	c := &Conn{ep: ep, linger: -1}
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

// Read reads up to len(p) bytes: what has arrived, or, if nothing has, the next bytes that do.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		if c.closed.Load() {
			return 0, net.ErrClosed
		}
		return 0, nil
	}
	c.mu.Lock() // a Read leaves the core on the fast path, if it is
	c.rd.callLock.lock(&c.mu)
	n, err := 0, c.start(&c.rd)
	if err == nil {
		n, err = c.read(p)
	}
	c.rd.callLock.unlock()
	err = c.closing(err)
	c.unlock()
	return n, err
}

// read needs mu.
func (c *Conn) read(p []byte) (int, error) {
	for {
		if c.closed.Load() {
			return 0, net.ErrClosed
		}
		n, err := c.core.read(p)
		if n > 0 || err != nil {
			return n, err
		}
		if c.core.canPull() {
			if op, begun := c.core.pull(p); begun {
				if n := c.readPiece(op); n > 0 {
					return n, nil
				}
				continue
			}
		}
		if err := c.sleep(&c.rd); err != nil {
			return 0, err
		}
	}
}

// readPiece brings a piece of an offer that is under way to its end and returns the bytes that it brought into the
// Read's buffer. As the device may use that until then, neither a deadline nor Close ends the wait at once: in write
// mode the peer is asked to stop; and a piece that does not end in revokeTimeout costs the connection. It needs mu.
func (c *Conn) readPiece(op provider.RDMA) int {
	c.postRead(op)
	for c.core.in.busy && c.core.in.user {
		if c.sleep(&c.rd) != nil || c.core.reading == readShut {
			c.core.stopPiece()
			c.revoke(&c.rd.waiter, func() bool { return !c.core.in.busy })
		}
	}
	return c.core.takePiece()
}

// postRead posts an RDMA read of the core, without mu, as it may copy in place. It needs mu.
func (c *Conn) postRead(op provider.RDMA) {
	if op.Local.Bytes == nil {
		return // write mode: a target has been sent
	}
	c.mu.Unlock()
	err := c.core.reader.PostRead(op)
	c.lock()
	c.core.pullPosted(err)
	c.core.poll()
	c.signal()
}

// Write writes p. It returns when all of it lies where the peer can read it, whatever this end does next, so that p may
// be used again; or fails with the number of bytes that the peer can ever read.
func (c *Conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	if c.core.fast && !c.wr.taken && !c.wr.deadline.expired() && c.writeFast(p) {
		c.unlockFast()
		return len(p), nil
	}
	c.wr.callLock.lock(&c.mu)
	c.core.fast = false
	n, err := 0, c.start(&c.wr)
	if err == nil {
		n, err = c.write(p)
	}
	c.wr.callLock.unlock()
	err = c.closing(err)
	c.unlock()
	return n, err
}

// writeFast is write for a small p on the fast path; false: it is not that simple. It needs mu.
func (c *Conn) writeFast(p []byte) bool {
	if !c.tuner.timesCopy(len(p)) {
		return c.core.writeFast(p)
	}
	start := monotonic()
	if !c.core.writeFast(p) {
		return false
	}
	c.tuner.copied(len(p), monotonic()-start)
	return true
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

// write needs mu.
func (c *Conn) write(p []byte) (int, error) {
	if len(p) == 0 && !c.closed.Load() {
		return 0, c.core.writeNothing()
	}
	n, rdma := 0, true
	for n < len(p) {
		if c.closed.Load() {
			return n, net.ErrClosed
		}
		switch use := rdma && c.core.useRDMA(len(p)-n); {
		case use && c.core.canData():
			first, begun := c.core.offer(p[n:])
			if begun {
				m, err := c.offered()
				n += first + m
				if err != nil {
					return n, err
				}
			}
			rdma = false // where the peer cannot take it all, copy the rest
			continue
		case !use:
			m, err := c.copyOut(p[n:])
			n += m
			if err != nil || n == len(p) {
				return n, err
			}
		}
		c.block()
		if err := c.sleep(&c.wr); err != nil {
			return n, err
		}
	}
	return n, nil
}

// copyOut sends what can be sent of p in messages.
func (c *Conn) copyOut(p []byte) (int, error) {
	if !c.tuner.timesCopy(len(p)) {
		return c.core.write(p)
	}
	start := monotonic()
	n, err := c.core.write(p)
	if n == len(p) {
		c.tuner.copied(n, monotonic()-start)
	}
	return n, err
}

// offered waits until the peer is done with an offer, making the RDMA writes that it asks for, and returns how many bytes
// the peer has. It needs mu.
func (c *Conn) offered() (int, error) {
	var err error
	var start int64
	timed := c.tuner.timesMove(len(c.core.out.p))
	if timed {
		start = monotonic()
	}
	for err == nil && !c.core.outboundOver() {
		if op, begun := c.core.push(); begun {
			c.postWrite(op)
		} else if c.epClosed {
			c.core.dropOutbound()
		} else if err = c.sleep(&c.wr); err == nil && c.core.writing != writeOpen && !c.core.outboundOver() {
			if err = syscall.EPIPE; c.closed.Load() { // CloseWrite, or Close
				err = net.ErrClosed
			}
		}
	}
	if err != nil {
		c.core.revokeOutbound()
		c.revoke(&c.wr.waiter, c.core.outboundOver)
	}
	total := len(c.core.out.p)
	n := c.core.takeOutbound()
	if n < total {
		if err == nil && c.core.writeOver() {
			err = c.core.writeEnd()
		}
		return n, err
	}
	if timed && c.core.out.direct {
		c.tuner.moved(n, monotonic()-start)
		if t := c.tuner.threshold(); t != 0 {
			c.core.threshold = t
		}
	}
	return n, nil // also where it was complete before the deadline could take it back
}

// postWrite posts an RDMA write of the core, without mu, as it may copy in place. It needs mu.
func (c *Conn) postWrite(op provider.RDMA) {
	c.mu.Unlock()
	err := c.ep.PostWrite(op)
	c.lock()
	c.core.pushPosted(err)
	c.core.poll()
	c.signal()
}

// revokeTimeout is how long a peer may take to give memory back before that costs the connection.
const revokeTimeout = 5 * time.Second

// revoke waits until over reports that the memory is free. A peer that does not answer in time loses the connection,
// as closing the endpoint is the one way left to make sure that nobody uses the memory. It needs mu.
func (c *Conn) revoke(w *waiter, over func() bool) {
	var limit deadline
	limit.set(time.Now().Add(revokeTimeout))
	defer limit.stop()
	for !over() {
		if limit.expired() || c.epClosed {
			c.core.fail(syscall.ETIMEDOUT, abortTimeout)
			c.closeEndpoint()
			return
		}
		c.sleepUntil(w, &limit)
	}
}

// LocalAddr is the address of this end.
func (c *Conn) LocalAddr() netip.AddrPort {
	c.mu.Lock()
	defer c.unlockIdle()
	if c.move.local.IsValid() {
		return c.move.local
	}
	return c.ep.LocalAddr()
}

// RemoteAddr is the address of the peer.
func (c *Conn) RemoteAddr() netip.AddrPort {
	c.mu.Lock()
	defer c.unlockIdle()
	if c.move.remote.IsValid() {
		return c.move.remote
	}
	return c.ep.RemoteAddr()
}

// Stats returns what the session has done so far.
func (c *Conn) Stats() Stats {
	c.lock()
	defer c.unlock() // also here: a wake-up may have found mu held
	return c.core.statistics()
}
