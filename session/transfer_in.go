package session

import (
	"syscall"

	pool "github.com/libp2p/go-buffer-pool"

	"sansock/provider"
	"sansock/session/regcache"
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

	busy   bool   // a piece is under way: dst belongs to the device
	user   bool   // dst is a Read's, not our own
	dst    []byte // where the piece goes
	handle provider.Handle
	got    int  // bytes of a finished piece that the Read has not noticed yet
	over   bool // the Read's piece has ended

	direct       bool // all pieces so far were a Read's
	targetWanted bool // to be sent
	target       target
	untarget     bool // kindUntarget to be sent
	doneWanted   bool // kindDone to be sent
	doneID       uint64
	doneCount    uint64
}

const (
	directRead = 8 << 10  // from this size on a Read's own buffer is worth a piece
	ownPiece   = 64 << 10 // piece that is fetched into a buffer of our own
	maxPiece   = 64 << 20 // bounds how long the end of a piece must be waited for
)

// ready reports that a Read can do something about the offer.
func (in *inbound) ready() bool { return in.over || in.active && !in.busy && !in.revoked }

// offered begins an offer.
func (c *core) offered(id uint64, o offer) error {
	if c.in.active || c.eof || c.in.doneWanted {
		return protocolError("offer %d in the middle of another, or after the end", id)
	}
	if s := c.susp; s != nil && !s.leaving && !s.over {
		return protocolError("offer %d in a hand-over", id) // its memory would go with the endpoint
	}
	if o.read && c.reader == nil {
		return protocolError("offer to read without RDMA read")
	}
	if c.closing || c.aborting {
		c.abort(abortReset)
		return nil
	}
	if c.shut() {
		c.fail(syscall.ECONNRESET, abortReset) // as for data in messages
		return nil
	}
	c.in.active, c.in.id, c.in.total, c.in.taken = true, id, o.total, 0
	c.in.desc, c.in.read, c.in.revoked, c.in.direct = o.desc, o.read, false, true
	if c.deaf {
		c.endOffer(c.in.total) // dropped
	}
	return nil
}

// pull begins to fetch a piece of the offer for a Read: into p or, where p is small, into a buffer of our own.
func (c *core) pull(p []byte) (op provider.RDMA, begun bool) {
	if in := &c.in; len(p) >= directRead || uint64(len(p)) >= in.total-in.taken {
		return c.begin(p[:min(len(p), maxPiece)], true)
	}
	return c.pullPiece(ownPiece)
}

// pullPiece begins to fetch a piece of at most n bytes into a buffer of our own, for somebody who reads it right away.
func (c *core) pullPiece(n int) (op provider.RDMA, begun bool) {
	if !c.canPull() {
		return op, false
	}
	return c.begin(pool.Get(int(min(uint64(n), c.in.total-c.in.taken))), false)
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
	n := int(min(ownPiece, c.in.total-c.in.taken))
	if room := c.readBuffer - c.spilled; room < n {
		if n = room; n < c.readBuffer/2 {
			return 0
		}
	}
	return n
}

// behind reports that something can be done for the peer's Write although nobody reads.
func (c *core) behind() bool {
	return c.canPull() && c.room() > 0 || c.peerStuck && !c.full && c.queue.len() > 0
}

// canPull reports that a piece may begin.
func (c *core) canPull() bool {
	return c.in.active && !c.in.busy && !c.in.revoked && !c.ended && !c.done && !c.aborting
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
	in.dst = dst[:min(uint64(len(dst)), in.total-in.taken)]
	if in.read {
		in.dst = in.dst[:min(len(in.dst), c.attr.MaxRDMA)]
	}
	if err := c.register(); err != nil {
		// Let the peer copy instead.
		c.stats.Fallbacks.ReceiveRegistration++
		c.dropPiece()
		c.endOffer(in.taken)
		c.pump()
		return op, false
	}
	in.busy = true
	if !in.read {
		in.targetWanted = true
		c.pump()
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
		in.handle, err = c.registerLocal(in.dst)
		return err
	}
	r, err := c.expose(in.dst, provider.RightWrite)
	if err != nil {
		return err
	}
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
		c.revokeAccess(c.in.handle)
	}
	c.in.handle = 0
}

// registerLocal makes memory of the application usable by the device, where that is needed. The peer cannot reach it, so that
// the registration may be kept for the next time. It is given back with regs.Put.
func (c *core) registerLocal(b []byte) (provider.Handle, error) {
	if !c.attr.LocalRegistration {
		return 0, nil
	}
	h, err := c.registrations().Get(b)
	if err == nil {
		c.stats.Registrations++
	}
	return h, err
}

// registrations are those of the application's memory that are kept.
func (c *core) registrations() *regcache.Cache {
	if c.regs == nil {
		c.regs = regcache.New(c.ep, c.cache)
	}
	return c.regs
}

// expose lets the peer reach memory of the application. Registrations that are only kept, by any connection, are given up for that.
func (c *core) expose(b []byte, rights provider.Rights) (provider.Region, error) {
	r, err := c.ep.Expose(b, rights)
	s := provider.StatusOf(err)
	if (s == provider.StatusLimit || s == provider.StatusNoMemory) && c.attr.LocalRegistration && c.registrations().Relieve(len(b)) {
		r, err = c.ep.Expose(b, rights)
	}
	if err == nil {
		c.stats.Registrations++
	}
	return r, err
}

// revokeAccess ends a registration of the application's memory. Where the provider fails, closing the endpoint is
// the other way to take the memory out of reach.
func (c *core) revokeAccess(h provider.Handle) {
	if err := c.ep.Deregister(h); err != nil && !c.ended {
		if c.err == nil {
			c.err = err
		}
		c.reset, c.ended, c.done = true, true, true
	}
}

// pullPosted reports the result of posting the op that pull returned.
func (c *core) pullPosted(err error) {
	if err == nil {
		return
	}
	c.postFailed(err)
	if c.in.busy { // else the endpoint was closed meanwhile
		c.pieceEnded(0)
	}
}

// pulled acts on the completion of an RDMA read.
func (c *core) pulled(s provider.Status) {
	if !c.in.busy {
		return
	}
	if s == provider.StatusOK {
		c.stats.ReadTransfers++
		c.pieceEnded(len(c.in.dst))
		return
	}
	c.pieceEnded(0)
	if s != provider.StatusAborted && s != provider.StatusDisconnected {
		c.fail(s, abortFailed)
	}
}

// wrote acts on the peer's word that it has written n bytes of the target.
func (c *core) wrote(id, n uint64) error {
	in := &c.in
	if !in.active || in.read || in.id != id || !in.busy || in.targetWanted || n > uint64(len(in.dst)) {
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
	c.stats.BytesRDMAIn += uint64(n)
	in.busy, in.targetWanted, in.untarget = false, false, false
	if in.user {
		in.got, in.over, in.dst = n, true, nil
	} else if n > 0 && !c.deaf {
		c.keepPiece(n)
	} else {
		c.dropPiece()
	}
	switch {
	case !in.active:
	case in.taken == in.total && !in.read:
		in.active = false // the peer, who wrote it, knows
	case in.taken == in.total || in.revoked:
		c.endOffer(in.taken)
	case c.deaf:
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
		c.keep(dst[:n], c.queue.len() > 0)
		pool.Put(dst)
		return
	}
	c.queue.push(item{data: dst[:n], own: dst, gen: -1})
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
	c.in.doneWanted, c.in.doneID, c.in.doneCount = true, c.in.id, count
}

// revoked acts on the peer's wish to take its offer back.
func (c *core) revoked(id uint64) error {
	if c.in.active && c.in.id == id {
		c.in.revoked = true
		if !c.in.busy {
			c.endOffer(c.in.taken)
		}
	}
	return nil // otherwise the done message has crossed it
}

// stopPiece asks the peer to end the piece that is being written, because the Read has to return.
func (c *core) stopPiece() {
	if c.in.busy && c.in.targetWanted {
		c.pieceEnded(0) // it has not heard of it
		c.pump()
	} else if c.in.busy && !c.in.read && !c.in.untarget {
		c.in.untarget = true
		c.pump()
	}
}

// pumpInbound sends the control messages of the inbound offer.
func (c *core) pumpInbound() {
	in := &c.in
	if in.targetWanted && c.canControl() {
		in.targetWanted = false
		in.target.put(c.scratch[headerSize:])
		c.post(kindTarget, 0, in.id, targetSize, nil, true)
	}
	if in.untarget && in.busy && c.canControl() {
		in.untarget = false
		c.post(kindUntarget, 0, in.id, 0, nil, true)
	}
	if in.doneWanted && c.canControl() {
		in.doneWanted = false
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
