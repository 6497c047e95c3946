package provider

import "net/netip"

// Endpoint is one end of a connection. Messages arrive in the order in which they were sent, into the receives
// in the order in which these were posted, each message into one.
//
// All methods may be called from any goroutine. None blocks on the peer.
// Operations are posted, then reported as completions by Poll, each exactly once. Memory that an operation
// uses is left alone by the caller until then. Operations do not allocate.
//
// # Order
//
// Sends and RDMA writes of an endpoint take effect at the peer in the order posted: a message that
// arrives proves that every RDMA write posted before it is in place. An RDMA read may take effect at any time
// between being posted and its completion. The completion of a send or an RDMA write means that
// its memory may be used again. It proves nothing about the peer.
//
// # End
//
// A connection ends when either side calls Close, or the link or the peer dies. Then, at the side that did
// not call Close, the messages that had arrived are reported first, every operation that
// is posted completes with StatusAborted (or the status that describes the cause), and last of all comes one
// completion with OpDisconnect. Its status is StatusDisconnected where the peer has closed or nothing else is known,
// and otherwise says what ended the connection; it is never StatusOK or StatusAborted. Providers that have an
// Appender say StatusExited, or StatusExitedUnread, where the peer's process has ended without closing, however that came about.
// Posting afterwards fails with StatusDisconnected.
//
// An access that the owner of the memory refuses (StatusAccess, for a wrong key, bounds or right) may end the
// connection, as it does on hardware, and a refused RDMA write may complete as if it had succeeded. The memory
// is not touched in any case.
type Endpoint interface {
	Attributes() Attributes
	LocalAddr() netip.AddrPort
	RemoteAddr() netip.AddrPort

	// Allocate returns message memory of the provider's own, zeroed, registered for local use and contiguous to
	// the device (the proxy driver's AllocateCommonBuffer). Deregister releases it.
	// Errors: StatusNoMemory, StatusLimit, StatusClosed.
	Allocate(size int) (Region, error)

	// Register makes b usable in local Segments (WSPRegisterMemory). b must stay what it is, the same object or
	// mapping, until it is deregistered. Errors: StatusNoMemory, StatusLimit, StatusClosed.
	Register(b []byte) (Region, error)

	// Expose registers b as Register does and lets the connected peer of this endpoint, and nobody else,
	// use it within its bounds and rights, while it is registered and the connection stands
	// (WSPRegisterRdmaMemory). Errors: as for Register, StatusUnsupported for rights that the SAN cannot grant.
	Expose(b []byte, rights Rights) (Region, error)

	// Deregister ends a registration (WSPDeregisterMemory, WSPDeregisterRdmaMemory). When it returns, the
	// peer cannot reach the memory any more and the device has stopped using it: an access under way has
	// either finished or will be refused. Deregistering memory that own posted operations still name is refused with
	// StatusBusy. An unknown handle is StatusAccess. It works after Close.
	Deregister(h Handle) error

	// PostRecv posts a buffer for one message. Errors: StatusQueueFull, StatusLocal, StatusClosed,
	// StatusDisconnected. After an error nothing is posted.
	//
	// A message for which no receive is posted is an error of the peer's: the provider may let it wait, or end
	// the connection, but never drops it silently. The first message of a connection, if no longer
	// than MaxFirstMessage, is held until a receive is posted.
	PostRecv(r Recv) error

	// PostSend sends one message. Errors as for PostRecv, and StatusTooLong.
	PostSend(s Send) error

	// PostWrite writes local memory to exposed memory of the peer (WSPRdmaWrite). Errors as for PostSend.
	PostWrite(w RDMA) error

	// Poll takes up to len(c) completions, oldest first, and returns how many (WSPGetOverlappedResult).
	Poll(c []Completion) int

	// OnWake sets the function that is called when an armed completion arrives. It is called from
	// any goroutine, possibly one that is inside a method of the peer's endpoint, so it must be quick, must not block
	// and must not call the provider. It is set once, before the first Arm.
	OnWake(wake func())

	// Arm asks for one call of the wake function at the next completion that w covers, and reports whether
	// such completions are waiting already, which must then be polled before going to sleep (arm, poll once
	// more, sleep). A provider that cannot tell solicited ones apart reports, and wakes for, all. Arming
	// again replaces the mode. A wake-up uses the arming up. Disconnection is covered by every mode but WakeNone.
	Arm(w Wake) (ready bool)

	// Extension looks up an optional extension by its WSD identifier (SIO_GET_EXTENSION_FUNCTION_POINTER): the
	// value has the type named at the GUID. Unknown or missing ones are an error that is errors.ErrUnsupported.
	Extension(id GUID) (any, error)

	// Close ends the connection. When it returns, every posted operation has completed, those cut
	// short with StatusAborted, the device no longer touches any memory, the peer cannot reach any, and
	// wake will not be called again. Poll reports what is left, and then nothing for ever. Messages whose
	// send had completed without error reach the peer. Registrations are released, except that memory
	// from Allocate stays readable until Deregister. Closing again does nothing.
	Close() error
}

// Recv is a buffer for one message.
type Recv struct {
	Context uint64 // returned in the completion
	Buffer  Segment
}

// Send is one message: either Local, registered memory, or the two Inline pieces after each other, which may be any
// memory, are at most Attributes.MaxInline together, and may be used again as soon as PostSend returns.
type Send struct {
	Context uint64
	Local   Segment
	Inline  [2][]byte

	// Solicited wakes a peer that armed for WakeSolicited.
	Solicited bool

	// Open lets the message grow by Appender.Append until the peer takes it, which is when its Poll reports it. Providers
	// without that extension ignore it.
	Open bool
}

// IsInline reports whether the message comes from Inline. Such a send has no completion
// unless it fails.
func (s *Send) IsInline() bool { return s.Local.Bytes == nil }

// RDMA is a transfer between local memory and exposed memory of the peer.
type RDMA struct {
	Context uint64
	Local   Segment    // its length is the length of the transfer, at most Attributes.MaxRDMA
	Remote  Descriptor // as the peer sent it
	Offset  uint64     // into the memory that Remote names
}

// Completion reports the end of a posted operation, or of the connection.
type Completion struct {
	Context uint64
	Op      Op
	Status  Status
	Len     int // bytes received, for OpRecv
}

// Op is the kind of operation that a Completion reports.
type Op uint8

const (
	OpRecv       Op = iota + 1 // a message has arrived
	OpSend                     // a message's memory may be used again
	OpWrite                    // likewise of an RDMA write
	OpRead                     // the data of an RDMA read is here
	OpDisconnect               // the connection has ended; nothing follows
)

// Wake selects the completions that call the wake function.
type Wake uint8

const (
	WakeNone      Wake = iota // none
	WakeSolicited             // received messages that were sent with Solicited, failures and disconnection
	WakeAny                   // every completion
)
