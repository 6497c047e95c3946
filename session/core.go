package session

import (
	"encoding/binary"
	"io"
	"syscall"

	pool "github.com/libp2p/go-buffer-pool"

	"sansock/provider"
	"sansock/session/regcache"
)

// core is the protocol of one end of a session as a state machine. It has no goroutines, clocks or locks: whoever
// drives it calls poll when completions may have arrived, and the operations of the application, one at a time.
// None of its methods blocks. What stops an operation is visible in readable, writable and finished.
//
// The files core_*.go hold its parts: core_send.go what leaves, core_recv.go what arrives, transfer_*.go large writes.
type core struct {
	ep     provider.Endpoint
	attr   provider.Attributes
	levels []level
	reader provider.RDMAReader // nil: no RDMA read here

	// Receiving.
	recv       [2]receives // one in use, the other retired or empty
	cur        int         // the one in use
	level      int         // its level
	sinceGrow  int         // bytes received at this level
	growAt     int         // growing failed: not to be tried before so many bytes have been received at this level
	owed       int         // buffers posted again, not granted yet
	peerWant   bool        // the peer is to be told when there is nothing left to read
	repay      bool        // a control message may have used one of the last credits
	peerStuck  bool        // a Write of the peer waits for them
	queue      ring[item]  // the stream received, unread
	queued     int         // bytes in it, without offers
	lent       int         // receive buffers in the hands of the application
	spilled    int         // bytes of those in buffers of our own
	readBuffer int         // bound on spilled
	full       bool        // the bound keeps data in the receive buffers
	eof        bool        // the peer's stream has ended
	deaf       bool        // CloseRead: reading ends where the queue does

	// Sending.
	win        window
	send       sends
	scratch    [headerSize + offerSize]byte // header of the message being sent
	held       []byte                       // small writes gathered for one message
	small      bool                         // writes are small, and may be gathered
	flow       bool                         // small writes follow each other fast, and are gathered, see flow.go
	dry        bool                         // a Read sleeps
	told       bool                         // the peer will say when it has nothing left to read
	inFlight   int                          // sends posted from the region, not completed
	buffer     uint8                        // state of a Buffer that is sent as a message
	late       *provider.Send               // a message that the provider had no room for; usually nil
	finWanted  bool                         // CloseWrite: nothing is written any more
	finSent    bool
	pong       uint64 // argument of the ping to answer
	pongWanted bool
	peerGone   bool // the peer has closed: nobody reads what we write
	pipeTold   bool // a write has been told so, or was the one that is taken all the same

	// Large writes.
	in         inbound
	out        outbound
	threshold  int             // size from which a write is offered; 0: never
	regs       *regcache.Cache // local registrations of the application's memory; nil before the first
	cache      regcache.Limits
	peerReader bool // the peer can RDMA-read

	// Ending.
	closing    bool // Close: clean, everything sent is still delivered
	closeSent  bool
	ackWanted  bool // answer the peer's kindClose
	aborting   bool
	abortSent  bool
	paused     bool // no data leaves, for a hand-over
	aside      bool // there is something beside the stream, see aside.go
	asideOut   bool // of which something waits to leave
	abortCode  uint64
	ended      bool  // OpDisconnect, or the endpoint refused a send as disconnected
	done       bool  // nothing more to do: the endpoint may be closed
	err        error // why the connection broke
	reset      bool  // it did break: there is nothing left to shut down
	errTold    bool  // it has been reported once; from then on it looks closed, as TCP does
	growWanted bool  // a resize is to be announced
	drainSize  bool  // it shrinks: ask the peer to use up the old buffers
	shrinking  bool  // the receive region is to become small, as soon as that is possible
	drainAsked bool  // the peer is to be asked to use up older buffers, which are in the way of that
	draining   bool  // the peer asks for that

	// calm: there is nothing to look after but the bytes of the stream. Such a core takes and sends data without asking for
	// everything else first; whatever happens besides ends it. See canCalm, and Conn.settle.
	calm bool

	comps [8]provider.Completion
	stats Stats

	features uint32 // those that both ends have
	offers   uint32 // those of this end

	// Beside the stream.
	urg      *urgent     // nil until there is something urgent
	susp     *suspension // the last hand-over; nil: none
	suspends uint64      // number of the last one of this end
	goOnSoon uint64      // number of one that was called off, to be told
	dialer   bool        // this end gives way where both begin one
	muted    bool        // nothing leaves but credits, and the peer is about to go; abortSent is set, too
}

// item is a piece of the received stream: data in a posted buffer (gen >= 0), or in a buffer of our own (gen < 0).
type item struct {
	data []byte
	own  []byte // the pooled buffer that data lies in
	gen  int32
	slot int32
}

// Abort codes.
const (
	abortReset    = 1 // the application dropped the connection, or closed it with unread data
	abortProtocol = 2 // the peer broke the protocol
	abortTimeout  = 3 // the peer did not answer in time
	abortFailed   = 4 // an operation of the provider failed
)

// poll takes completions and acts on them. It returns how many there were.
func (c *core) poll() int {
	total := 0
	for {
		n := c.ep.Poll(c.comps[:])
		for i := range n {
			c.complete(&c.comps[i])
		}
		total += n
		if n < len(c.comps) {
			break
		}
	}
	if total > 0 && (!c.calm || len(c.held) > 0) {
		c.pump()
	}
	return total
}

func (c *core) complete(p *provider.Completion) {
	if c.calm && p.Status == provider.StatusOK && c.completeCalm(p) {
		return
	}
	c.calm = false
	switch p.Op {
	case provider.OpRecv:
		gen, slot := splitContext(p.Context)
		c.recv[gen].posted--
		switch {
		case p.Status == provider.StatusOK && c.err == nil:
			c.receive(gen, slot, p.Len)
		case p.Status != provider.StatusOK && p.Status != provider.StatusAborted && p.Status != provider.StatusDisconnected:
			c.fail(p.Status, abortFailed)
		}
	case provider.OpSend:
		c.sent(p.Context)
		if p.Status != provider.StatusOK && p.Status != provider.StatusAborted {
			c.disconnected()
		}
	case provider.OpRead:
		c.pulled(p.Status)
	case provider.OpWrite:
		c.pushed(p.Status)
	case provider.OpDisconnect:
		c.disconnected()
	}
}

// disconnected notes the end of the provider's connection. What had been received stays readable.
func (c *core) disconnected() {
	if c.muted {
		return // it goes on elsewhere, or does not come in time
	}
	if c.ended {
		return
	}
	c.ended, c.done = true, true
	if c.err == nil && !c.peerGone && !c.closing {
		c.err, c.reset = syscall.ECONNRESET, true
	}
	c.peerGone = true
}

// fail breaks the connection for err, and tells the peer.
func (c *core) fail(err error, code uint64) {
	if c.err == nil {
		c.err = err
	}
	c.reset = true
	c.abort(code)
}

// abort drops the connection: what has not been sent is not, and the peer sees ECONNRESET.
func (c *core) abort(code uint64) {
	c.calm = false // also where a Read, or a completion, of a calm core comes here
	if !c.aborting {
		c.aborting, c.abortCode = true, code
		c.done = c.done || c.muted // there is nobody to tell
		c.pump()
	}
}

// readable reports that the Read can go on: read would return something, or an end, or its piece has ended.
func (c *core) readable() bool {
	if c.in.busy && c.in.user {
		return false
	}
	return c.queue.len() > 0 || c.in.ready() || c.eof || c.deaf || c.err != nil || c.ended
}

// read moves received data into p. When it returns 0 and no error, there is nothing yet, or an offer that can be pulled.
func (c *core) read(p []byte) (int, error) {
	if c.queue.n == 0 {
		c.poll()
	}
	n := 0
	for n < len(p) && c.queue.n > 0 {
		it := c.queue.front()
		m := copy(p[n:], it.data)
		n += m
		if it.gen < 0 {
			c.spilled -= m
			c.full = false
		}
		if m < len(it.data) {
			it.data = it.data[m:]
			break
		}
		c.consumed(it)
		c.queue.drop()
	}
	c.queued -= n
	if n > 0 {
		if c.peerStuck && c.recv[0].held+c.recv[1].held == 0 {
			c.peerStuck = false // everything is taken: its Write goes on
		}
		c.creditIfDue()
		return n, nil
	}
	if c.calm || c.in.active && !c.deaf {
		return 0, nil
	}
	return 0, c.readEnd()
}

// readEnd is the error of a read with nothing queued, nil if data may still come.
func (c *core) readEnd() error {
	switch {
	case c.eof:
		return io.EOF
	case c.err != nil:
		return c.tellErr(io.EOF)
	case c.deaf, c.ended:
		return io.EOF
	}
	return nil
}

// tellErr returns the connection's error the first time, and later what remains of the connection. A socket's error is
// consumed by the call that reports it; a broken protocol stays what it is.
func (c *core) tellErr(later error) error {
	if c.errTold && (c.err == syscall.ECONNRESET || c.err == syscall.ETIMEDOUT) {
		return later
	}
	c.errTold = true
	return c.err
}

// consumed gives the memory of a piece that was read back.
func (c *core) consumed(it *item) {
	if it.gen < 0 {
		pool.Put(it.own)
		return
	}
	c.recv[it.gen].held--
	c.repost(int(it.gen), int(it.slot))
}

// shut reports that the application neither reads nor writes any more, although it has not closed the connection.
func (c *core) shut() bool { return c.deaf && c.finSent }

// over reports that there is nothing left to shut down: the connection broke, or both streams have ended.
func (c *core) over() bool { return c.reset || c.eof && (c.finSent || c.finWanted && c.ended) }

// writeOver reports that nothing can be written any more.
func (c *core) writeOver() bool { return c.finWanted || c.err != nil || c.peerGone || c.ended }

// writeEnd is the error of a write where writeOver.
func (c *core) writeEnd() error {
	if c.err != nil && !c.finWanted {
		return c.tellErr(syscall.EPIPE)
	}
	c.pipeTold = true
	return syscall.EPIPE
}

// put encodes a count as the payload behind the scratch header.
func (c *core) putCount(n uint64) { binary.LittleEndian.PutUint64(c.scratch[headerSize:], n) }
