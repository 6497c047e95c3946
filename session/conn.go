// Package session is the session protocol: it makes a reliable stream each way of a connection that carries messages and RDMA
// transfers, package provider's Endpoint. It brings what an application expects of a socket and a SAN does not have: flow
// control by credits, buffering, deadlines, half-close, linger and keep-alive, and moves large writes by RDMA. Negotiate makes
// a Conn of an endpoint. What goes over the wire is in docs/protocol.md.
//
// A Conn's methods drive the protocol themselves, in the goroutine of their caller; others run only while something has to go on
// without one.
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
	// mu is held by whoever uses the core, but not while waiting, or while RDMA copies: rd and wr each belong to
	// one Read and one Write meanwhile. The provider's functions are called with mu held, except for RDMA. So
	// the wake function, which a provider calls from anywhere, must not wait for it.
	mu   sync.Mutex
	core core
	ep   provider.Endpoint

	spinner provider.Spinner // nil: the provider has none

	rd, wr   waiter // the Read and the Write that sleep
	rdl, wdl deadline
	missed   atomic.Bool   // a wake-up came while mu was held
	kicks    atomic.Uint32 // requests for progress; a goroutine runs while not 0

	closed   atomic.Bool
	epClosed bool
	opening  bool          // an address is being opened for a new end: one at a time, whatever the peer says
	reading  turn          // of Reads: the one whose turn it is will see to what arrives
	writing  turn          // of Writes
	linger   int           // SetLinger; -1: default
	over     chan struct{} // closed when the endpoint is; nil unless Close waits for it
	timers   timers
	tuner    tuner
	provider provider.Provider // of ep; nil: no hand-over
	patience time.Duration     // Config.ResumeTimeout
	moved    *moved            // nil until the peer, or this end, was handed over
}

func newConn(ep provider.Endpoint, cfg Config) *Conn {
	c := &Conn{ep: ep, linger: -1, provider: cfg.Provider, patience: cfg.ResumeTimeout}
	if c.patience <= 0 {
		c.patience = DefaultResumeTimeout
	}
	c.rd.ch = make(chan struct{}, 1)
	c.wr.ch = make(chan struct{}, 1)
	c.rdl.at.Store(never)
	c.wdl.at.Store(never)
	a := ep.Attributes()
	c.core = core{ep: ep, attr: a, levels: levels(a), readBuffer: cfg.ReadBuffer, threshold: cfg.Threshold}
	if c.core.threshold == 0 {
		c.core.threshold = a.RDMAThreshold
	}
	c.core.threshold = max(c.core.threshold, 0)
	if cfg.CacheBytes == 0 {
		cfg.CacheBytes = DefaultCacheBytes
	}
	if cfg.CacheBytes > 0 {
		c.core.cache = regcache.Limits{Entries: cacheEntries, Bytes: cfg.CacheBytes}
	}
	c.core.offers = features
	if cfg.Provider == nil {
		c.core.offers &^= featureHandover
	}
	if cfg.Threshold == 0 {
		c.tuner.base = a.RDMAThreshold
	}
	c.spinner = extension[provider.Spinner](ep, provider.GUIDSpinner)
	c.seats(ep)
	if a.MaxRDMAs > 1 { // else a read of ours might find a write in its place
		c.core.reader = extension[provider.RDMAReader](ep, provider.GUIDRDMARead)
	}
	return c
}

// extension returns the extension of the endpoint, nil if there is none.
func extension[T any](ep provider.Endpoint, id provider.GUID) (t T) {
	if x, err := ep.Extension(id); err == nil {
		t, _ = x.(T)
	}
	return t
}

// seats lets Reads and Writes sleep in the provider, where it has places for that.
func (c *Conn) seats(ep provider.Endpoint) {
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
	c.core.done = true
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
	c.mu.Lock() // a Read leaves the core calm, if it is
	c.reading.begin(&c.mu)
	n, err := 0, c.start(&c.rdl)
	if err == nil {
		n, err = c.read(p)
	}
	c.reading.end()
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
		if err := c.sleep(&c.rd, &c.rdl); err != nil {
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
		if c.sleep(&c.rd, &c.rdl) != nil || c.core.deaf {
			c.core.stopPiece()
			c.revoke(&c.rd, func() bool { return !c.core.in.busy })
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

// Write writes p. It returns when all of it has been copied or taken by the peer, so that p may be used
// again, or fails with the number of bytes that the peer can ever read.
func (c *Conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	if c.core.calm && !c.writing.taken && !c.wdl.expired() && c.writeCalm(p) {
		c.unlockCalm()
		return len(p), nil
	}
	c.writing.begin(&c.mu)
	c.core.calm = false
	n, err := 0, c.start(&c.wdl)
	if err == nil {
		n, err = c.write(p)
	}
	c.writing.end()
	err = c.closing(err)
	c.unlock()
	return n, err
}

// writeCalm is write for a small p and a calm core; false: it is not that simple. It needs mu.
func (c *Conn) writeCalm(p []byte) bool {
	if !c.tuner.timesCopy(len(p)) {
		return c.core.writeCalm(p)
	}
	start := monotonic()
	if !c.core.writeCalm(p) {
		return false
	}
	c.tuner.copied(len(p), monotonic()-start)
	return true
}

// closing is the error of a Read or Write: on a connection that has been closed meanwhile it is that, whatever became of the
// endpoint.
func (c *Conn) closing(err error) error {
	if err != nil && c.closed.Load() {
		return net.ErrClosed
	}
	return err
}

// start is the error with which a Read or Write fails before it begins.
func (c *Conn) start(d *deadline) error {
	switch {
	case c.closed.Load():
		return net.ErrClosed
	case d.expired():
		return os.ErrDeadlineExceeded
	}
	return nil
}

// write needs mu.
func (c *Conn) write(p []byte) (int, error) {
	if len(p) == 0 && !c.closed.Load() {
		return 0, c.core.writeNothing()
	}
	if len(p) > smallWrite {
		c.core.endFlow()
	}
	n, rdma := 0, true
	for n < len(p) {
		if c.closed.Load() {
			return n, net.ErrClosed
		}
		if rdma && c.core.useRDMA(len(p)-n) {
			first, begun := c.core.offer(p[n:])
			if begun {
				m, err := c.offered()
				n += first + m
				if err != nil {
					return n, err
				}
				rdma = n == len(p) // the peer could not take the rest: copy it
				continue
			}
			rdma = !c.core.canData()
		}
		if !rdma || c.core.canData() || !c.core.useRDMA(len(p)-n) {
			var start int64
			timed := c.tuner.timesCopy(len(p) - n)
			if timed {
				start = monotonic()
			}
			m, err := c.core.write(p[n:])
			n += m
			if timed && n == len(p) {
				c.tuner.copied(m, monotonic()-start)
			}
			if err != nil {
				return n, err
			}
			if n == len(p) {
				return n, nil
			}
		} else if c.core.writeOver() {
			return n, c.core.writeEnd()
		}
		c.block()
		if err := c.sleep(&c.wr, &c.wdl); err != nil {
			return n, err
		}
	}
	return n, nil
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
	for !c.core.outboundOver() {
		if op, begun := c.core.push(); begun {
			c.mu.Unlock()
			err := c.ep.PostWrite(op)
			c.lock()
			c.core.pushPosted(err)
			c.core.poll()
			c.signal()
			continue
		}
		if c.epClosed {
			c.core.dropOutbound()
			continue
		}
		if err = c.sleep(&c.wr, &c.wdl); err == nil && c.core.finWanted && !c.core.outboundOver() {
			if err = syscall.EPIPE; c.closed.Load() { // CloseWrite, or Close
				err = net.ErrClosed
			}
		}
		if err != nil {
			c.core.revokeOutbound()
			c.revoke(&c.wr, c.core.outboundOver)
			break
		}
	}
	total := len(c.core.out.p)
	n := c.core.takeOutbound()
	if err == nil && n < total && c.core.writeOver() {
		err = c.core.writeEnd()
	}
	if n == total {
		err = nil // it was complete before the deadline could take it back
		if timed && c.core.out.direct {
			c.tuner.moved(n, monotonic()-start)
			if t := c.tuner.threshold(); t != 0 {
				c.core.threshold = t
			}
		}
	}
	return n, err
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

// sleep waits until there may be something to do for w, or fails because of Close or the deadline. It needs mu,
// which it gives up meanwhile.
func (c *Conn) sleep(w *waiter, d *deadline) error {
	if w == &c.rd {
		c.core.endFlow() // what comes may be the answer to what was written
	}
	// As settle, but for the arming, which is still to come.
	if c.core.calm {
		c.signal() // of what a Read has polled for a Write that sleeps
	} else {
		c.finalize()
		c.signal()
		c.core.calm = c.core.canCalm()
		c.watch()
	}
	w.park()
	// From here on Close and a moved deadline find us parked.
	switch {
	case c.closed.Load():
		w.unpark()
		return net.ErrClosed
	case d.expired():
		w.unpark()
		return os.ErrDeadlineExceeded
	case c.epClosed:
		w.unpark()
		return nil
	}
	c.sleepParked(w, d)
	return nil
}

// sleepUntil is sleep where only the deadline counts.
func (c *Conn) sleepUntil(w *waiter, d *deadline) {
	w.park()
	if d.expired() || c.epClosed {
		w.unpark()
		return
	}
	c.sleepParked(w, d)
}

func (c *Conn) sleepParked(w *waiter, d *deadline) {
	spun := false
	if s := c.spinner; s != nil {
		c.mu.Unlock()
		spun = s.Spin()
		c.mu.Lock()
	}
	d.alarm(w)
	if w == &c.rd && !spun {
		c.core.dry = true
		c.core.dryUp()
		c.finalize() // if that has failed, nothing else would wake us
	}
	if spun {
		w.unpark()
	} else if seat := w.sit(); seat != nil {
		ready := c.arm()
		c.mu.Unlock()
		w.rise(seat, ready)
		c.mu.Lock()
	} else if c.arm() {
		w.unpark()
	} else {
		c.mu.Unlock()
		w.wait()
		c.mu.Lock()
	}
	if w == &c.wr {
		c.core.calm = false // for what the Write does next
	} else {
		c.core.dry = false
	}
	if c.core.poll() > 0 {
		c.signal()
	}
	if w == &c.rd && spun {
		c.core.dryUp() // what the spinner found was nothing to read, and may never be, or we are not told that
	}
	c.finalize()
}

// arm asks the provider for the wake-up that the sleepers need and reports whether there is something to poll. It needs
// mu: the last to arm decides, so it has to see who sleeps.
func (c *Conn) arm() bool {
	mode := provider.WakeSolicited
	if !c.core.calm && c.core.late != nil {
		c.later() // there may be nothing whose completion would say that there is room
	}
	if c.rd.parked() || c.wr.parked() || len(c.core.held) > 0 && !c.core.told ||
		!c.core.calm && (c.core.closing || c.core.done || c.core.shut() || c.core.pending()) {
		mode = provider.WakeAny
	}
	return c.ep.Arm(mode)
}

// wake is the provider's wake function. Who sleeps is woken; who holds mu finds missed set when it has released it; else a
// goroutine sees to it. As missed is set before mu is tried here, and looked at after mu is released
// there, one of the two notices.
func (c *Conn) wake() {
	if c.rd.wake() || c.wr.wake() {
		return
	}
	c.missed.Store(true)
	if c.mu.TryLock() {
		c.mu.Unlock()
		if c.missed.Swap(false) {
			c.kick()
		}
	}
}

// lock begins a use of the core.
func (c *Conn) lock() {
	c.mu.Lock()
	c.core.calm = false
}

// unlock ends a use of the core.
func (c *Conn) unlock() {
	c.settle()
	c.mu.Unlock()
	c.takeMissed()
}

// takeMissed sees to wake-ups that came while mu was held.
func (c *Conn) takeMissed() {
	for c.missed.Load() && c.missed.Swap(false) {
		c.mu.Lock()
		if !c.epClosed { // else it may be another Conn's, see adopt
			c.core.poll()
		}
		c.settle()
		c.mu.Unlock()
	}
}

// unlockCalm ends a use that has left the core as calm as it was: the arming is still in force, and nobody has to be woken. Of what
// gather has polled, a Read that waits has been told by the provider, even if it still spins: sleep had ended the flow, and
// the settle after which this one began has armed for it.
func (c *Conn) unlockCalm() {
	if !c.core.calm {
		c.unlock()
		return
	}
	c.mu.Unlock()
	c.takeMissed()
}

// unlockIdle ends a look at the Conn that has changed nothing.
func (c *Conn) unlockIdle() {
	c.mu.Unlock()
	if c.missed.Load() && c.missed.Swap(false) {
		c.kick()
	}
}

// signal wakes those who sleep and have something to do, and nobody else, or a Read and a Write that go back to sleep
// would wake each other for ever. It needs mu.
func (c *Conn) signal() {
	if c.rd.parked() && (c.core.readable() || c.epClosed) {
		c.rd.wake()
	}
	if c.wr.parked() && (c.core.writable() || c.epClosed) {
		c.wr.wake()
	}
	if c.core.aside {
		c.signalAside()
	}
}

// settle leaves the core in a state in which nobody need look after it: who can go on is awake, what happens next wakes
// somebody. It needs mu.
//
// Only here, and in sleep, the core may become calm: from then on, until more happens than that data comes or goes, all of
// this is done but the arming.
func (c *Conn) settle() {
	c.finalize()
	c.signal()
	if c.core.calm && !c.arm() {
		return
	}
	c.core.calm = c.core.canCalm()
	for tries := 0; !c.epClosed && c.arm(); tries++ {
		if tries == settleTries {
			c.core.calm = false
			c.kick()
			return
		}
		c.core.poll()
		c.finalize()
		c.signal()
		c.core.calm = c.core.canCalm()
	}
	c.watch()
}

// watch has somebody look after what does not come with a completion. It needs mu.
func (c *Conn) watch() {
	if c.epClosed {
		return
	}
	c.watchShrink()
	if !c.core.calm && !c.reading.taken && c.core.behind() {
		c.later()
	}
}

// settleTries bounds how long a peer that sends without a pause can hold up whoever settles.
const settleTries = 4

// kick has a goroutine see to what arrived while nobody was waiting.
func (c *Conn) kick() {
	if c.kicks.Add(1) == 1 {
		go c.progress()
	}
}

func (c *Conn) progress() {
	for {
		k := c.kicks.Load()
		c.lock()
		if !c.epClosed {
			c.core.poll()
			c.background()
		}
		c.unlock()
		if c.kicks.CompareAndSwap(k, 0) {
			return
		}
	}
}

// background takes in what nobody reads, within the receive buffer, so that the peer's Write returns. It needs mu.
func (c *Conn) background() {
	if c.reading.taken || c.epClosed {
		return
	}
	if c.core.peerStuck {
		c.core.spill()
		c.core.pump()
	}
	for !c.reading.taken && !c.epClosed {
		op, begun := c.core.pullOwn()
		if !begun {
			break
		}
		c.postRead(op)
		if c.core.in.busy {
			break // its completion wakes us again
		}
	}
}

// finalize closes the endpoint when the core is done with it. It needs mu.
func (c *Conn) finalize() {
	if !c.core.done || c.epClosed {
		return
	}
	if c.core.inFlight > 0 && !c.core.ended {
		c.timers.startLinger(c, sendTimeout) // the last message is still leaving
		return
	}
	c.closeEndpoint()
}

const sendTimeout = time.Second

// closeEndpoint ends the provider's connection. What was received stays readable. It needs mu.
func (c *Conn) closeEndpoint() {
	if c.epClosed {
		return
	}
	c.epClosed = true
	c.core.calm = false
	c.ep.Close()
	c.core.dropSuspend()
	c.core.ended, c.core.done = true, true
	c.core.poll()
	c.core.dropInbound()
	c.core.dropOutbound()
	if c.core.err == nil && !c.core.eof && !c.closed.Load() {
		c.core.err = syscall.ECONNRESET
	}
	c.timers.stop()
	if c.closed.Load() {
		c.core.finish()
	}
	if c.over != nil {
		close(c.over)
		c.over = nil
	}
	c.rd.wake()
	c.wr.wake()
}

// Close closes the connection. Reads and Writes return net.ErrClosed. Data written is still delivered in the background,
// unless received data was unread: then the peer sees ECONNRESET, as with TCP. See SetLinger.
//
// Small writes that are still gathered here are given a moment to leave, as there is no kernel that would deliver them if
// the program ended now.
func (c *Conn) Close() error {
	c.lock()
	if c.closed.Load() {
		c.unlock()
		return net.ErrClosed
	}
	c.closed.Store(true)
	c.rdl.stop()
	c.wdl.stop()
	c.rd.wake()
	c.wr.wake()
	if c.epClosed {
		c.core.finish()
		c.unlock()
		return nil
	}
	if c.linger == 0 {
		c.core.abort(abortReset)
	} else {
		c.core.close()
		c.flush()
	}
	c.timers.close()
	c.finalize()
	var over chan struct{}
	if !c.epClosed {
		if c.linger > 0 {
			over = make(chan struct{})
			c.over = over
		}
		c.timers.startLinger(c, closeTimeout/2)
	}
	linger := time.Duration(c.linger) * time.Second
	c.unlock()
	if over != nil {
		select {
		case <-over:
		case <-time.After(linger):
		}
	}
	return nil
}

// flush waits until what was gathered has left, but not long. It needs mu.
func (c *Conn) flush() {
	if len(c.core.held) == 0 {
		return
	}
	c.writing.begin(&c.mu) // a Write that waits now was woken: no large one goes beside what was gathered
	defer c.writing.end()
	c.core.calm = false
	c.core.block()
	var limit deadline
	limit.set(time.Now().Add(flushTimeout))
	defer limit.stop()
	for len(c.core.held) > 0 && !c.core.done && !c.epClosed && !limit.expired() {
		c.sleepUntil(&c.wr, &limit)
	}
}

// flushTimeout is how long Close waits for a peer that takes nothing.
const flushTimeout = 250 * time.Millisecond

// closeTimeout is how long a closed connection, of which the peer has not taken everything yet, may be without a sign of
// life from the peer before it is dropped.
const closeTimeout = 60 * time.Second

// CloseRead ends reading: once what has arrived is read, Read returns io.EOF. The peer is not told, and what it still
// writes is dropped, as with TCP.
func (c *Conn) CloseRead() error {
	c.lock()
	defer c.unlock()
	if c.closed.Load() {
		return net.ErrClosed
	}
	if c.core.poll(); c.core.over() {
		return syscall.ENOTCONN
	}
	c.core.closeRead()
	c.rd.wake() // a Read into which the peer writes
	return nil
}

// CloseWrite ends writing: the peer reads io.EOF after all that was written.
func (c *Conn) CloseWrite() error {
	c.lock()
	defer c.unlock()
	if c.closed.Load() {
		return net.ErrClosed
	}
	if c.core.poll(); c.core.over() {
		return syscall.ENOTCONN
	}
	c.core.closeWrite()
	c.wr.wake()
	return nil
}

// SetDeadline sets the read and the write deadline.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline sets when Reads, also one that waits, fail with os.ErrDeadlineExceeded. Zero: never.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.rdl, &c.rd, t) }

// SetWriteDeadline sets when Writes, also one that waits, fail with os.ErrDeadlineExceeded. Zero: never.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.wdl, &c.wr, t) }

// TakeDeadlines gives c, which nobody uses yet, the deadlines of old.
func (c *Conn) TakeDeadlines(old *Conn) {
	c.rdl.at.Store(old.rdl.at.Load())
	c.wdl.at.Store(old.wdl.at.Load())
}

func (c *Conn) setDeadline(d *deadline, w *waiter, t time.Time) error {
	if c.closed.Load() {
		return net.ErrClosed
	}
	d.set(t)
	w.wake() // it looks at the deadline anew
	return nil
}

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

// minReadBuffer is the smallest receive buffer.
const minReadBuffer = 4 << 10

// SetWriteBuffer does nothing: a session holds no more written data than one message.
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

// LocalAddr is the address of this end.
func (c *Conn) LocalAddr() netip.AddrPort {
	c.mu.Lock()
	defer c.unlockIdle()
	if c.moved != nil {
		return c.moved.local
	}
	return c.ep.LocalAddr()
}

// RemoteAddr is the address of the peer.
func (c *Conn) RemoteAddr() netip.AddrPort {
	c.mu.Lock()
	defer c.unlockIdle()
	if c.moved != nil {
		return c.moved.remote
	}
	return c.ep.RemoteAddr()
}

// Stats returns what the session has done so far.
func (c *Conn) Stats() Stats {
	c.lock()
	defer c.unlock() // also here: a wake-up may have found mu held
	s := c.core.stats
	for i := range c.core.recv {
		s.ReceiveRegion += len(c.core.recv[i].region.Bytes)
	}
	s.Threshold = c.core.threshold
	if c.core.regs != nil {
		r := c.core.regs.Stats()
		s.LiveRegistrations, s.CachedRegistrations = r.InUse, r.Cached
	}
	if c.core.out.active && c.core.out.read && c.core.out.handle != 0 {
		s.LiveRegistrations++
	}
	if c.core.in.busy && !c.core.in.read {
		s.LiveRegistrations++
	}
	return s
}
