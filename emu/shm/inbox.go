//go:build linux

package shm

import (
	"sync/atomic"

	"sansock/provider"
)

// The attributes of every endpoint follow from the size of its inbox.
const (
	slots    = 64 // of each ring
	maxRecvs = 48
	maxRDMAs = 4

	// MaxRecvs messages, MaxRDMAs requests and as many answers, one that is too long and the end
	// are the events that can wait at a time. So there is always room for one, and a peer that has
	// none has sent too much.
	_ = uint(slots - maxRecvs - 2*maxRDMAs - 2)

	maxMessage = 256<<10 + 64 // the session's header and what one write of 256 KiB has
	maxRDMA    = 1 << 20

	// A flow is fastest where what it goes through stays in the second-level cache of a core, with
	// what is read and written besides. Where the two processes run on different cores, more gains
	// nothing either.
	buffered = 16 * (64<<10 + 64)
)

var attributes = provider.Attributes{
	MaxMessage:    maxMessage,
	MaxRDMA:       maxRDMA,
	RDMAThreshold: 1 << 30, // messages are faster at every size
	MaxInline:     maxMessage,
	MaxRecvs:      maxRecvs,
	MaxSends:      64,
	MaxRDMAs:      maxRDMAs,
	RDMARead:      true,
	RDMAReadable:  true,
	Buffered:      buffered,
}

// Layout of an inbox, in words. It lies at a multiple of a cache line.
const (
	inArm     = 0
	inUnread  = 8
	inDescs   = 16
	inEvents  = inDescs + slots
	inHeld    = inEvents + slots
	inTable   = inHeld + provider.MaxFirstMessage/8
	inWords   = inTable + maxRDMAs*entryWords
	inboxSize = inWords * 8

	entryWords = 8
)

// inbox is one direction of a connection, in the arena of the receiving end. Message number i goes
// to receive number i. Words of the rings bear the number of the round, so that a slot itself says
// whether it is new: the rings need no indices, and a message costs the receiver two cache lines.
type inbox struct {
	arm    *atomic.Uint64  // a provider.Wake and perhaps parked, by the owner; the peer takes it and rings
	unread *atomic.Uint64  // what the owner has yet to read, for when its process ends, see unread
	descs  []atomic.Uint64 // receives, by the owner
	events []atomic.Uint64 // by the peer; an open message is taken by the owner
	held   []byte          // the first message, by the peer, if no receive is posted
	table  []atomic.Uint64 // RDMA requests, by the peer
}

func view(b []byte) inbox {
	w := words(b)
	return inbox{
		arm:    &w[inArm],
		unread: &w[inUnread],
		descs:  w[inDescs:inEvents],
		events: w[inEvents:inHeld],
		held:   b[inHeld*8 : inTable*8],
		table:  w[inTable:inWords],
	}
}

// lapShift is where the round is in a word.
const lapShift = 57

// lap is the round of slot i. In memory that is zero no slot is new.
func lap(i uint32) uint64 { return uint64(i/slots+1) & 127 << lapShift }

// current reports whether w is word number i, and not an older one.
func current(w uint64, i uint32) bool { return w>>lapShift<<lapShift == lap(i) }

// A descriptor is the place of a receive, its size, and the round.
const (
	sizeBits = 21
	_        = uint(lapShift - ptrBits - sizeBits)
	_        = uint(1<<sizeBits - 1 - maxMessage)
)

func packDesc(p ptr, size int, i uint32) uint64 { return uint64(p) | uint64(size)<<ptrBits | lap(i) }

func unpackDesc(w uint64) (p ptr, size int) {
	return ptr(w & (1<<ptrBits - 1)), int(w >> ptrBits & (1<<sizeBits - 1))
}

// An event is a length, a kind, an index or a status, a flag, and the round.
type kind uint8

const (
	evMessage  kind = iota + 1 // message of that length for the next receive
	evHeld                     // the same, but it lies in the inbox
	evTooLong                  // the next receive is too short for a message
	evRequest                  // the entry of the table with that index
	evAnswer                   // to the request with that index; the length is the status
	evAccepted                 // the first to the dialer: the place of the sender's inbox, in units of grain
	evFin                      // the last: the sender touches nothing any more; the length is the cause
)

const (
	solicited = 1 << 48
	open      = 1 << 49 // a message that may grow, see Append
)

// parked in the word by which an endpoint is armed says that the parking place's bell is to be
// rung.
const parked = 1 << 8

func packEvent(k kind, arg uint8, n int, flag uint64, i uint32) uint64 {
	return uint64(uint32(n)) | uint64(k)<<32 | uint64(arg)<<40 | flag | lap(i)
}

func unpackEvent(w uint64) (k kind, arg uint8, n uint32) {
	return kind(w >> 32), uint8(w >> 40), uint32(w)
}

// header is what the peer tells the dispatcher of a link: which connections want attention.
type header struct {
	sleeps  *atomic.Uint64  // 1: ring the doorbell
	parted  *atomic.Uint64  // 1: the owner, who lives, has given the link up
	summary []atomic.Uint64 // words of pending that are not zero
	pending []atomic.Uint64 // a bit for each connection
}

const (
	maxConns    = 1 << 15 // of one link
	hdrParted   = 8
	hdrSummary  = 16
	hdrPending  = hdrSummary + 16
	pendingLen  = maxConns / 64
	headerBytes = (hdrPending + pendingLen) * 8
)

func viewHeader(b []byte) header {
	w := words(b[:headerBytes])
	return header{
		sleeps: &w[0], parted: &w[hdrParted], summary: w[hdrSummary : hdrSummary+pendingLen/64], pending: w[hdrPending:],
	}
}

// mark marks a connection, for when the dispatcher is rung next.
func (h *header) mark(id uint32) {
	h.pending[id/64].Or(1 << (id % 64))
	h.summary[id/64/64].Or(1 << (id / 64 % 64))
}

// post marks a connection, and reports whether the doorbell has to be rung.
func (h *header) post(id uint32) bool {
	h.mark(id)
	return h.sleeps.Load() == 1 && h.sleeps.CompareAndSwap(1, 0)
}

func (h *header) any() bool {
	for i := range h.summary {
		if h.summary[i].Load() != 0 {
			return true
		}
	}
	return false
}
