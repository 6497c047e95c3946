package session

import (
	"encoding/binary"
	"errors"

	"sansock/provider"
)

// core is the protocol of one end of a session as a state machine. It has no goroutines, clocks or locks: whoever
// drives it calls poll when completions may have arrived, and the operations of the application, one at a time.
// None of its methods blocks. What stops an operation is visible in readable, writable and finished.
//
// Its state is grouped by lifetime: the stream outlives a hand-over, a line ends with its endpoint, in and out with one
// large write.
type core struct {
	stream
	line
	outbox // what is to be sent over the line

	in  inbound
	out outbound

	life      life
	abortCode uint64

	urg      *urgent     // nil until there is something urgent
	susp     *suspension // the last hand-over; nil: none
	suspends uint64      // number of the last one of this end
	goOn     uint64      // number of one that was called off: the argument of letterGoOn
	dialer   bool        // this end gives way where both begin one
	pong     uint64      // the argument of letterPong

	threshold int // size from which a write is offered; 0: never
	stats     Stats
}

// life is what becomes of the connection, as far as this end decides it. It only goes down the list.
type life uint8

const (
	lifeOpen      life = iota
	lifeClosing        // Close: what was written is delivered, and then kindClose
	lifeCloseSent      // kindClosed is waited for
	lifeSettling       // to be dropped when the large writes have ended: both ends then know what was read
	lifeAborting       // kindAbort is to be sent
	lifeDone           // nothing is left to do: the endpoint may be closed
)

// errUnwanted is the error of a message that brings what nobody will read. The peer has to know that it was lost.
var errUnwanted = errors.New("session: closed")

// Abort codes.
const (
	abortReset    = 1 // the application dropped the connection, or closed it with unread data
	abortProtocol = 2 // the peer broke the protocol
	abortTimeout  = 3 // the peer did not answer in time
	abortFailed   = 4 // an operation of the provider failed
)

// canFast reports that the next message of the stream, in either direction, needs nothing but to be sent, or taken.
func (c *core) canFast() bool {
	return c.due == 0 && !c.in.active && !c.in.busy && !c.out.active && c.line.plain() &&
		c.reading == readOpen && c.writing == writeOpen && c.peer == peerThere && c.err == nil &&
		c.life == lifeOpen && (c.susp == nil || c.susp.over())
}

// failure is the error of an operation that ended with s: nil where that is fine, or just the end of the connection.
func failure(s provider.Status) error {
	switch s {
	case provider.StatusOK, provider.StatusAborted, provider.StatusDisconnected, provider.StatusExited,
		provider.StatusExitedUnread:
		return nil
	}
	return s
}

// plain reports that the line has nothing to look after.
func (l *line) plain() bool {
	return l.state == lineUp && l.fault == nil && l.late == nil && l.send.want == 0 && l.buffer == bufferNone &&
		!l.peerBlocked && !l.shrinking
}

// pending reports that something waits to leave, or an RDMA read of nobody's is under way: what they wait for need not
// be solicited.
func (c *core) pending() bool {
	return c.due != 0 || c.late != nil || c.in.busy && c.in.read || c.send.want != 0 || c.life == lifeSettling
}

// putCount encodes a count as the payload behind the scratch header.
func (c *core) putCount(n uint64) { binary.LittleEndian.PutUint64(c.scratch[headerSize:], n) }

// statistics completes what the core has counted.
func (c *core) statistics() Stats {
	s := c.stats
	s.BytesCopiedIn, s.BytesCopiedOut = c.arrived-s.BytesRDMAIn, c.stream.written-s.BytesRDMAOut
	s.MessagesReceived += c.received
	s.MessagesSent += c.sent
	for i := range c.recv {
		s.ReceiveRegion += len(c.recv[i].region.Bytes)
	}
	s.Threshold = c.threshold
	if c.regs != nil {
		r := c.regs.Stats()
		s.LiveRegistrations, s.CachedRegistrations = r.InUse, r.Cached
	}
	if c.out.active && c.out.read && c.out.handle != 0 {
		s.LiveRegistrations++
	}
	if c.in.busy && !c.in.read {
		s.LiveRegistrations++
	}
	return s
}

// letter is a message that is to be sent as soon as there is a credit for it, and what else it needs. A letter has no
// content of its own: it is written when it leaves. In order of urgency.
type letter uint8

const (
	letterGrow     letter = iota // a new receive region
	letterShrink                 // likewise, and the peer is asked to use up the old one
	letterDrain                  // the peer is asked to use up its older receives
	letterUseUp                  // nops that use them up
	letterClosed                 // the answer to kindClose
	letterPong                   // the answer to kindPing
	letterTarget                 // inbound: memory for the next bytes
	letterUntarget               // inbound: that memory is wanted back
	letterDone                   // inbound: no more is taken
	letterWrote                  // outbound: bytes of the target are written
	letterRevoke                 // outbound: the offer is taken back
	letterBlocked                // a Write waits
	letterFin                    // the end of the stream
	letterClose                  // the end of the connection
	letterGoOn                   // a hand-over is called off
	letterTaken                  // urgent messages are taken
	letterSuspend                // a hand-over, or the answer to one
	letters
)

// outbox holds the letters that are due.
type outbox struct{ due uint32 }

func (o *outbox) want(l letter)        { o.due |= 1 << l }
func (o *outbox) cancel(l letter)      { o.due &^= 1 << l }
func (o *outbox) wanted(l letter) bool { return o.due&(1<<l) != 0 }
