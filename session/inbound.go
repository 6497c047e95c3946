package session

import (
	"syscall"

	pool "github.com/libp2p/go-buffer-pool"

	"sansock/provider"
)

// inbound is a large write of the peer's that is being received. There is one at a time, as the peer's Write waits for
// it, and it follows everything that is queued.
//
// Its bytes are fetched in pieces, each straight into the buffer of a waiting Read or, where nobody reads, into a
// buffer of our own. In read mode a piece is one RDMA read of ours. In write mode we expose the memory as a
// target, and the peer writes and says so.
type inbound struct {
	active  bool
	id      uint64
	total   uint64
	taken   uint64 // bytes fetched
	desc    provider.Descriptor
	read    bool // read mode
	revoked bool // the peer takes it back: no new piece
	direct  bool // all pieces so far were a Read's
	piece

	doneID    uint64 // of letterDone
	doneCount uint64
}

// piece is the part of an offer that is being fetched, or that was fetched for a Read.
type piece struct {
	busy   bool   // it is under way: dst belongs to the device
	user   bool   // dst is a Read's, not our own
	over   bool   // the Read's piece has ended
	got    int    // with so many bytes, which the Read has not noticed yet
	dst    []byte // where it goes
	handle provider.Handle
	target target // write mode
}

const (
	directRead = 8 << 10  // from this size on a Read's own buffer is worth a piece
	ownPiece   = 64 << 10 // piece that is fetched into a buffer of our own
	maxPiece   = 64 << 20 // bounds how long the end of a piece must be waited for
)

// ready reports that a Read can do something about the offer.
func (in *inbound) ready() bool { return in.over || in.active && !in.busy && !in.revoked }

// rest is how many bytes of the offer have not been fetched.
func (in *inbound) rest() uint64 { return in.total - in.taken }

// offered begins an offer.
func (c *core) offered(id uint64, o offer) error {
	switch {
	case c.in.active || c.reading == readEOF || c.wanted(letterDone):
		return protocolError("offer %d in the middle of another, or after the end", id)
	case c.susp != nil && c.susp.role == passive && !c.susp.over():
		return protocolError("offer %d in a hand-over", id) // its memory would go with the endpoint
	case o.read && c.reader == nil:
		return protocolError("offer to read without RDMA read")
	case c.life >= lifeClosing:
		return errUnwanted
	case c.bothShut():
		return syscall.ECONNRESET // as for data in messages
	}
	c.in.active, c.in.id, c.in.total, c.in.taken = true, id, o.total, 0
	c.in.desc, c.in.read, c.in.revoked, c.in.direct = o.desc, o.read, false, true
	if c.reading == readShut {
		c.endOffer(c.in.total) // dropped
	}
	return nil
}

// pull begins to fetch a piece of the offer for a Read: into p or, where p is small, into a buffer of our own.
func (c *core) pull(p []byte) (op provider.RDMA, begun bool) {
	if len(p) >= directRead || uint64(len(p)) >= c.in.rest() {
		return c.begin(p[:min(len(p), maxPiece)], true)
	}
	return c.pullPiece(ownPiece)
}

// pullPiece begins to fetch a piece of at most n bytes into a buffer of our own, for somebody who reads it right away.
func (c *core) pullPiece(n int) (op provider.RDMA, begun bool) {
	if !c.canPull() {
		return op, false
	}
	return c.begin(pool.Get(int(min(uint64(n), c.in.rest()))), false)
}

// pullOwn begins to fetch a piece while nobody reads, within the limit for what is kept.
func (c *core) pullOwn() (op provider.RDMA, begun bool) {
	if n := c.room(); n > 0 {
		return c.pullPiece(n)
	}
	return op, false
}

// room is the size of the piece that pullOwn may fetch. Until there is room for one that is worth the trouble it is 0.
func (c *core) room() int {
	n := int(min(ownPiece, c.in.rest()))
	if room := c.readBuffer - c.spilled; room < n {
		if n = room; n < c.readBuffer/2 {
			return 0
		}
	}
	return n
}

// behind reports that something can be done for the peer's Write although nobody reads.
func (c *core) behind() bool {
	return c.canPull() && c.room() > 0 || c.peerBlocked && !c.full && c.queue.Len() > 0
}

// canPull reports that a piece may begin.
func (c *core) canPull() bool {
	return c.in.active && !c.in.busy && !c.in.revoked && c.line.sound() && c.life < lifeSettling
}

// begin begins to fetch a piece into dst, which is a Read's if user. It reports whether that was possible. In read mode
// the caller then posts op, without holding up anybody else, and reports the result to pullPosted.
func (c *core) begin(dst []byte, user bool) (op provider.RDMA, begun bool) {
	if !c.canPull() {
		return op, false
	}
	in := &c.in
	in.user = user
	in.direct = in.direct && user
	in.dst = dst[:min(uint64(len(dst)), in.rest())]
	if in.read {
		in.dst = in.dst[:min(len(in.dst), c.attr.MaxRDMA)]
	}
	if err := c.register(); err != nil {
		// Let the peer copy instead.
		c.stats.Fallbacks.ReceiveRegistration++
		c.dropPiece()
		c.endOffer(in.taken)
		return op, false
	}
	in.busy = true
	if !in.read {
		c.want(letterTarget)
		return op, true
	}
	return provider.RDMA{
		Local:  provider.Segment{Bytes: in.dst, Handle: in.handle},
		Remote: in.desc,
		Offset: in.taken,
	}, true
}

// register makes dst usable by the device.
func (c *core) register() (err error) {
	in := &c.in
	in.handle = 0
	if in.read {
		if in.handle, err = c.registerLocal(in.dst); err == nil && in.handle != 0 {
			c.stats.Registrations++
		}
		return err
	}
	r, err := c.expose(in.dst, provider.RightWrite)
	if err != nil {
		return err
	}
	c.stats.Registrations++
	if !in.user {
		clear(in.dst) // the peer says what it has written: it must not make us pass on what was there before
	}
	in.handle, in.target = r.Handle, target{length: uint64(len(in.dst)), desc: r.Descriptor}
	return nil
}

// unregister undoes register.
func (c *core) unregister() {
	switch {
	case c.in.handle == 0:
	case c.in.read:
		c.regs.Put(c.in.handle)
	default:
		c.conceal(c.in.handle)
	}
	c.in.handle = 0
}

// pullPosted reports the result of posting the op that pull returned.
func (c *core) pullPosted(err error) {
	if err == nil {
		return
	}
	c.sendFailed(err)
	if c.in.busy { // else the endpoint was closed meanwhile
		c.pieceEnded(0)
	}
}

// pulled acts on the completion of an RDMA read.
func (c *core) pulled(s provider.Status) error {
	n := 0
	switch {
	case !c.in.busy:
		return nil
	case s == provider.StatusOK:
		c.stats.ReadTransfers++
		n = len(c.in.dst)
	}
	c.pieceEnded(n)
	return failure(s)
}

// wrote acts on the peer's word that it has written n bytes of the target.
func (c *core) wrote(id, n uint64) error {
	in := &c.in
	if !in.active || in.read || in.id != id || !in.busy || c.wanted(letterTarget) || n > uint64(len(in.dst)) {
		return protocolError("%d bytes written for offer %d", n, id)
	}
	if n > 0 {
		c.stats.WriteTransfers++
	}
	c.pieceEnded(int(n))
	return nil
}

// pieceEnded takes the n bytes that arrived. From here on the device does not touch dst.
func (c *core) pieceEnded(n int) {
	in := &c.in
	c.unregister()
	in.taken += uint64(n)
	c.arrived += uint64(n)
	c.stats.BytesRDMAIn += uint64(n)
	in.busy = false
	c.cancel(letterTarget)
	c.cancel(letterUntarget)
	if in.user {
		in.got, in.over, in.dst = n, true, nil
	} else if n > 0 && c.reading != readShut {
		c.keepPiece(n)
	} else {
		c.dropPiece()
	}
	switch {
	case !in.active:
	case in.rest() == 0 && !in.read:
		in.active = false // the peer, who wrote it, knows
	case in.rest() == 0 || in.revoked || c.life >= lifeSettling:
		c.endOffer(in.taken)
	case c.reading == readShut:
		c.endOffer(in.total)
	}
}

// keepPiece appends the n bytes in dst to the stream. Small ones share a buffer, or many of them would take much more
// memory than their bytes.
func (c *core) keepPiece(n int) {
	dst := c.in.dst
	c.in.dst = nil
	c.queued += n
	if n < spillChunk/2 {
		c.keep(dst[:n], c.queue.Len() > 0)
		pool.Put(dst)
		return
	}
	c.queue.Push(item{data: dst[:n], own: dst, gen: -1})
	c.spilled += n
}

// dropPiece gives up dst.
func (c *core) dropPiece() {
	if c.in.dst != nil && !c.in.user {
		pool.Put(c.in.dst)
	}
	c.in.dst = nil
}

// takePiece returns what a finished piece brought into the Read's buffer.
func (c *core) takePiece() int {
	n := c.in.got
	c.in.got, c.in.over = 0, false
	return n
}

// endOffer ends the offer, of which count bytes were taken. The peer sends the rest in messages.
func (c *core) endOffer(count uint64) {
	c.in.active = false
	c.in.doneID, c.in.doneCount = c.in.id, count
	c.want(letterDone)
}

// revoked acts on the peer's wish to take its offer back. If there is none, the done message has crossed it.
func (c *core) revoked(id uint64) {
	if c.in.active && c.in.id == id {
		c.in.revoked = true
		if !c.in.busy {
			c.endOffer(c.in.taken)
		}
	}
}

// stopPiece asks the peer to end the piece that is being written, because the Read has to return.
func (c *core) stopPiece() {
	switch {
	case !c.in.busy:
	case c.wanted(letterTarget):
		c.pieceEnded(0) // the peer has not heard of it
	case !c.in.read && !c.wanted(letterUntarget):
		c.want(letterUntarget)
	}
}

// sendInbound sends a letter about the inbound offer.
func (c *core) sendInbound(l letter) {
	in := &c.in
	switch l {
	case letterTarget:
		in.target.put(c.scratch[headerSize:])
		c.post(kindTarget, 0, in.id, targetSize, nil, true)
	case letterUntarget:
		if in.busy {
			c.post(kindUntarget, 0, in.id, 0, nil, true)
		}
	case letterDone:
		c.putCount(in.doneCount)
		var flags uint8
		if in.direct {
			flags = flagDirect
		}
		c.post(kindDone, flags, in.doneID, 8, nil, true)
	}
}

// dropInbound ends a piece under way after the endpoint was closed, which made sure that the device is done with it.
func (c *core) dropInbound() {
	if c.in.busy {
		c.pieceEnded(0)
	}
	c.in.active = false
}
