package session

import (
	"encoding/binary"
	"fmt"

	"sansock/provider"
)

// Every message but a hello is a header, little-endian, and a payload. docs/protocol.md is the norm.
//
//	0  type     u8
//	1  flags    u8
//	2  credits  u16  receive buffers granted to the peer, of the size granted last
//	4  length   u32  payload bytes; with flagOpen, those that it began with
//	8  arg      u64  depends on the type
const headerSize = 16

// kind is the type of a message.
type kind uint8

const (
	kindCredit   kind = iota + 1 // only returns credits
	kindNop                      // does nothing but carry flags, or use up a retired receive buffer
	kindReady                    // the dialer's last step of the negotiation
	kindData                     // payload: bytes of the stream
	kindResize                   // arg: size of the buffers that credits grant from this message on; flagDrain: use up the old ones
	kindFin                      // the sender writes no more
	kindClose                    // the sender neither writes nor reads any more; answered by kindClosed
	kindClosed                   // everything before the peer's kindClose has been received
	kindAbort                    // the sender has dropped the connection; arg: abort code
	kindOffer                    // a large write; arg: its number; payload: offer, then the first bytes
	kindDone                     // the receiver is done with an offer; arg: its number; payload: bytes taken
	kindTarget                   // write mode: the receiver's memory for the offer; arg: its number; payload: target
	kindWrote                    // write mode: the target is filled; arg: number; payload: bytes written
	kindRevoke                   // the sender takes back an offer; arg: its number; answered by kindDone
	kindUntarget                 // the receiver takes back a target; arg: its number; answered by kindWrote
	kindPing                     // answered by kindPong with the same arg
	kindPong
	kindUrgent // an urgent message; arg: its mark, a position in the stream; payload: its bytes
	kindTaken  // the receiver is done with urgent messages; arg: how many, since the beginning

	// Hand-over; arg of each: its number.
	kindSuspend   // the sender wants to go on elsewhere; it sends no more data
	kindSuspended // the receiver has stopped, and sends nothing more; payload: ticket, or empty if it cannot
	kindGoOn      // the sender stays after all
	kinds
)

func (k kind) String() string {
	names := [kinds]string{kindCredit: "credit", kindNop: "nop", kindReady: "ready", kindData: "data",
		kindResize: "resize", kindFin: "fin", kindClose: "close", kindClosed: "closed", kindAbort: "abort",
		kindOffer: "offer", kindDone: "done", kindTarget: "target", kindWrote: "wrote", kindRevoke: "revoke",
		kindUntarget: "untarget", kindPing: "ping", kindPong: "pong", kindUrgent: "urgent",
		kindTaken: "taken", kindSuspend: "suspend", kindSuspended: "suspended", kindGoOn: "go on"}
	if k < kinds && names[k] != "" {
		return names[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

const (
	flagMore    = 1 << iota // larger or more receive buffers would help the sender
	flagBlocked             // a Write waits: take data out of the receive buffers even where nobody reads
	flagDrain               // with kindResize, kindNop: use up receive buffers of older sizes
	flagDirect              // with kindDone: all of it went into a waiting Read
	flagOpen                // with kindData: bytes may have been appended, see provider.Appender
)

// header is a decoded message header.
type header struct {
	kind    kind
	flags   uint8
	credits uint16
	length  uint32
	arg     uint64
}

func (h header) put(b []byte) {
	_ = b[headerSize-1]
	b[0], b[1] = byte(h.kind), h.flags
	binary.LittleEndian.PutUint16(b[2:], h.credits)
	binary.LittleEndian.PutUint32(b[4:], h.length)
	binary.LittleEndian.PutUint64(b[8:], h.arg)
}

// parseHeader decodes the header of message b, which holds exactly one message. b may be changed by
// the peer at any time, so the caller uses the returned header and never looks at these bytes again.
func parseHeader(b []byte) (header, error) {
	if len(b) < headerSize {
		return header{}, protocolError("message of %d bytes", len(b))
	}
	h := header{
		kind:    kind(b[0]),
		flags:   b[1],
		credits: binary.LittleEndian.Uint16(b[2:]),
		length:  binary.LittleEndian.Uint32(b[4:]),
		arg:     binary.LittleEndian.Uint64(b[8:]),
	}
	if h.kind == 0 || h.kind >= kinds {
		return header{}, protocolError("message of unknown %v", h.kind)
	}
	if payload := uint64(len(b) - headerSize); uint64(h.length) != payload &&
		(h.kind != kindData || h.flags&flagOpen == 0 || uint64(h.length) > payload) {
		return header{}, protocolError("%v of %d bytes says %d", h.kind, len(b)-headerSize, h.length)
	}
	return h, nil
}

// offer begins a large write. In read mode desc names the memory that holds the bytes after the first ones.
type offer struct {
	total uint64 // bytes offered beyond the first ones
	desc  provider.Descriptor
	read  bool // the receiver may RDMA-read desc; otherwise it sends targets
}

const offerSize = 8 + 1 + 24

func (o offer) put(b []byte) {
	_ = b[offerSize-1]
	binary.LittleEndian.PutUint64(b, o.total)
	b[8] = 0
	if o.read {
		b[8] = 1
	}
	copy(b[9:], o.desc[:])
}

func parseOffer(b []byte) (o offer, err error) {
	if len(b) < offerSize {
		return o, protocolError("offer of %d bytes", len(b))
	}
	o.total = binary.LittleEndian.Uint64(b)
	if b[8] > 1 {
		return o, protocolError("offer of mode %d", b[8])
	}
	o.read = b[8] == 1
	copy(o.desc[:], b[9:offerSize])
	if o.total == 0 || o.total > maxTransfer {
		return o, protocolError("offer of %d bytes", o.total)
	}
	return o, nil
}

// maxTransfer is the largest offer, chosen so that sums of sizes cannot overflow.
const maxTransfer = 1 << 56

// target is receiver's memory for the next length bytes of an offer (write mode).
type target struct {
	length uint64
	desc   provider.Descriptor
}

const targetSize = 8 + 24

func (t target) put(b []byte) {
	_ = b[targetSize-1]
	binary.LittleEndian.PutUint64(b, t.length)
	copy(b[8:], t.desc[:])
}

func parseTarget(b []byte) (t target, err error) {
	if len(b) != targetSize {
		return t, protocolError("target of %d bytes", len(b))
	}
	t.length = binary.LittleEndian.Uint64(b)
	copy(t.desc[:], b[8:])
	if t.length == 0 || t.length > maxTransfer {
		return t, protocolError("target of %d bytes", t.length)
	}
	return t, nil
}

// parseCount decodes the payload of kindDone and kindWrote.
func parseCount(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, protocolError("count of %d bytes", len(b))
	}
	return binary.LittleEndian.Uint64(b), nil
}
