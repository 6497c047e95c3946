package session

import "sansock/provider"

// outbound is a large write of ours. There is one at a time: Write waits until the peer is done with the memory.
type outbound struct {
	active  bool
	id      uint64
	p       []byte // the memory offered
	read    bool   // read mode: p is exposed, the peer reads it
	handle  provider.Handle
	taken   uint64 // bytes that the peer can read, counted when over
	over    bool   // the peer, or we, are done with it
	revoke  bool   // kindRevoke to be sent
	revoked bool   // sent
	direct  bool   // all of it went straight into a waiting Read
	pieces  int    // RDMA writes posted and not completed

	target     target // write mode: where the next bytes go
	targetSet  bool
	written    uint64 // bytes of the target written
	sent       uint64 // bytes written to targets before
	stop       bool   // the peer wants the target back
	wroteCount uint64
	wrote      bool // kindWrote to be sent

	buffer provider.Handle // registration that the Write's memory has already; not ours to end
}

// firstPart is how much of a large write rides in the offer, where messages leave from registered memory: the
// receiver can start on it while the rest is fetched. A provider that takes messages of any size
// inline copies them itself, so that there an RDMA read brings the first byte just as soon.
const firstPart = 4 << 10

// useRDMA reports whether a write of n bytes should be offered.
func (c *core) useRDMA(n int) bool {
	return c.threshold > 0 && n >= c.threshold && !c.out.active && len(c.held) == 0
}

// offer begins a large write of p and returns how many bytes went with the offer. Where it cannot be made it reports
// false: the write then goes in messages.
func (c *core) offer(p []byte) (first int, begun bool) {
	out := &c.out
	if !c.canData() || c.writeOver() {
		return 0, false
	}
	if c.attr.MaxInline < c.win.size() {
		first = min(firstPart, c.payload()-offerSize, len(p)-1)
	}
	if c.payload() < offerSize {
		return 0, false
	}
	rest := p[first:]
	read := c.peerReader && c.attr.RDMAReadable
	var r provider.Region
	var err error
	if read {
		r, err = c.expose(rest, provider.RightRead)
	} else if out.buffer == 0 {
		r.Handle, err = c.registerLocal(rest)
	}
	if err != nil {
		c.stats.Fallbacks.SendRegistration++
		return 0, false
	}
	*out = outbound{active: true, id: out.id + 1, p: rest, read: read, handle: r.Handle, buffer: out.buffer}
	offer{total: uint64(len(rest)), desc: r.Descriptor, read: read}.put(c.scratch[headerSize:])
	c.post(kindOffer, 0, out.id, offerSize, p[:first], true)
	c.stats.BytesCopiedOut += uint64(first)
	return first, true
}

// offerDone acts on the peer's word that it has taken count bytes, and will take no more.
func (c *core) offerDone(id, count uint64) error {
	out := &c.out
	if id != out.id || out.over || !out.active {
		return protocolError("offer %d done unasked", id)
	}
	if count > uint64(len(out.p)) || !out.read && count != out.sent && count != uint64(len(out.p)) {
		return protocolError("%d bytes of offer %d taken", count, id)
	}
	c.endOutbound(count)
	return nil
}

// endOutbound ends the offer: the peer has, or can read, count bytes of it. RDMA writes that are not
// complete keep it from being over.
func (c *core) endOutbound(count uint64) {
	out := &c.out
	out.taken, out.over = count, true
	out.targetSet, out.wrote, out.revoke = false, false, false
	c.stats.BytesRDMAOut += count
	c.releaseOutbound()
}

func (c *core) releaseOutbound() {
	out := &c.out
	switch {
	case out.handle == 0 || out.pieces > 0:
		return
	case out.read:
		c.revokeAccess(out.handle)
	default:
		c.regs.Put(out.handle)
	}
	out.handle = 0
}

// outboundOver reports that the memory is the caller's again.
func (c *core) outboundOver() bool { return c.out.over && c.out.pieces == 0 }

// takeOutbound ends the Write's part and returns how many bytes the peer has taken.
func (c *core) takeOutbound() int {
	n := c.out.taken
	c.out.active, c.out.p = false, nil
	if c.finWanted || c.aside {
		c.pump() // they have waited for it
	}
	return int(n)
}

// revokeOutbound asks for the memory back. The peer's answer, or our own count in write mode, ends the offer.
func (c *core) revokeOutbound() {
	if out := &c.out; out.active && !out.over && !out.revoke && !out.revoked {
		out.revoke = true
		if out.targetSet && out.pieces == 0 {
			c.endTarget()
		}
		c.pump()
	}
}

// targeted acts on memory that the peer exposes for the next bytes.
func (c *core) targeted(id uint64, t target) error {
	out := &c.out
	if id != out.id || out.read || !out.active || out.over || out.targetSet || t.length > uint64(len(out.p))-out.sent {
		return protocolError("target of %d bytes for offer %d", t.length, id)
	}
	out.target, out.targetSet, out.written, out.stop = t, true, 0, false
	if out.revoke || out.revoked {
		c.endTarget()
	}
	return nil
}

// untargeted acts on the peer's wish to have its target back.
func (c *core) untargeted(id uint64) error {
	if c.out.active && c.out.id == id && c.out.targetSet {
		c.out.stop = true
		if c.out.pieces == 0 {
			c.endTarget()
		}
	}
	return nil // otherwise our kindWrote has crossed it
}

// canPush reports that push would begin something.
func (c *core) canPush() bool {
	out := &c.out
	return out.active && !out.over && out.targetSet && !out.stop && out.pieces == 0 && !out.revoke && !c.ended && !c.done && !c.aborting
}

// push begins the next RDMA write to the target. The caller posts op, without holding up anybody else, and reports the
// result to pushPosted.
func (c *core) push() (op provider.RDMA, begun bool) {
	out := &c.out
	if !c.canPush() {
		return op, false
	}
	n := min(out.target.length-out.written, uint64(c.attr.MaxRDMA), maxPiece)
	from := out.sent + out.written
	op = provider.RDMA{
		Local:  provider.Segment{Bytes: out.p[from : from+n], Handle: max(out.handle, out.buffer)}, // one of them at most
		Remote: out.target.desc,
		Offset: out.written,
	}
	out.written += n
	out.pieces++
	return op, true
}

// pushPosted reports the result of posting the op that push returned.
func (c *core) pushPosted(err error) {
	if err == nil {
		return
	}
	c.postFailed(err)
	if c.out.pieces > 0 { // else the endpoint was closed meanwhile
		c.out.pieces--
	}
}

// pushed acts on the completion of an RDMA write.
func (c *core) pushed(s provider.Status) {
	out := &c.out
	if out.pieces == 0 {
		return
	}
	out.pieces--
	if out.over {
		c.releaseOutbound()
	}
	if s != provider.StatusOK {
		out.stop = true // the connection ends
		if s != provider.StatusAborted && s != provider.StatusDisconnected {
			c.fail(s, abortFailed)
		}
		return
	}
	if !out.over && out.targetSet && (out.written == out.target.length || out.stop || out.revoke) {
		c.endTarget()
	}
}

// endTarget tells the peer how much of its target is written.
func (c *core) endTarget() {
	out := &c.out
	if out.written > 0 {
		c.stats.WriteTransfers++
	}
	out.wrote, out.wroteCount = true, out.written
	out.sent += out.written
	out.targetSet = false
}

// pumpOutbound sends the control messages of the outbound offer.
func (c *core) pumpOutbound() {
	out := &c.out
	if out.active && out.wrote && c.canControl() {
		out.wrote = false
		c.putCount(out.wroteCount)
		c.post(kindWrote, 0, out.id, 8, nil, true)
		if out.sent == uint64(len(out.p)) {
			c.endOutbound(out.sent)
		}
	}
	if out.active && out.revoke && !out.over && !out.targetSet && !out.wrote && c.canControl() {
		out.revoke, out.revoked = false, true
		c.post(kindRevoke, 0, out.id, 0, nil, true)
	}
}

// dropOutbound ends the offer after the endpoint was closed, which revoked the memory and completed the posted writes.
func (c *core) dropOutbound() {
	c.dropLate()
	if c.out.active && !c.out.over {
		c.out.pieces = 0
		c.endOutbound(c.out.sent)
	}
}
