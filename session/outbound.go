package session

import "sansock/provider"

// outbound is a large write of ours. There is one at a time: Write waits until the peer is done with the memory.
type outbound struct {
	active  bool
	id      uint64
	p       []byte // the memory offered
	read    bool   // read mode: p is exposed, the peer reads it
	handle  provider.Handle
	buffer  provider.Handle // registration that the Write's memory has already; not ours to end
	taken   uint64          // bytes that the peer can read, counted when over
	over    bool            // the peer, or we, are done with it
	revoked bool            // it was taken back: letterRevoke is due, or sent
	direct  bool            // all of it went straight into a waiting Read
	pieces  int             // RDMA writes posted and not completed

	// Write mode.
	target     target // where the next bytes go
	targetSet  bool
	stop       bool   // the peer wants the target back
	written    uint64 // bytes of the target written
	sent       uint64 // bytes written to targets before
	wroteCount uint64 // of letterWrote
}

// firstPart is how much of a large write rides in the offer, where messages leave from registered memory: the
// receiver can start on it while the rest is fetched. A provider that takes messages of any size
// inline copies them itself, so that there an RDMA read brings the first byte just as soon.
const firstPart = 4 << 10

// useRDMA reports whether a write of n bytes should be offered.
func (c *core) useRDMA(n int) bool {
	return c.threshold > 0 && n >= c.threshold && !c.out.active && !c.writeOver()
}

// offer begins a large write of p and returns how many bytes went with the offer. Where it cannot be made it reports
// false: the write then goes in messages.
func (c *core) offer(p []byte) (first int, begun bool) {
	out := &c.out
	if !c.canData() || c.writeOver() || c.payload() < offerSize {
		return 0, false
	}
	if c.attr.MaxInline < c.win.size() {
		first = min(firstPart, c.payload()-offerSize, len(p)-1)
	}
	rest := p[first:]
	*out = outbound{id: out.id, buffer: out.buffer, p: rest, read: c.peerReader && c.attr.RDMAReadable}
	desc, err := c.registerOffer()
	if err != nil {
		c.stats.Fallbacks.SendRegistration++
		out.p = nil
		return 0, false
	}
	out.active = true
	out.id++
	offer{total: uint64(len(rest)), desc: desc, read: out.read}.put(c.scratch[headerSize:])
	c.post(kindOffer, 0, out.id, offerSize, p[:first], true)
	c.stream.written += uint64(first)
	return first, true
}

// registerOffer makes the memory of an offer usable by the peer, or by our own device.
func (c *core) registerOffer() (desc provider.Descriptor, err error) {
	out := &c.out
	if out.read {
		r, err := c.expose(out.p, provider.RightRead)
		if err == nil {
			c.stats.Registrations++
		}
		out.handle = r.Handle
		return r.Descriptor, err
	}
	if out.buffer == 0 {
		if out.handle, err = c.registerLocal(out.p); err == nil && out.handle != 0 {
			c.stats.Registrations++
		}
	}
	return desc, err
}

// offerDone acts on the peer's word that it has taken count bytes, and will take no more.
func (c *core) offerDone(id, count uint64, direct bool) error {
	out := &c.out
	out.direct = direct
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
	out.targetSet = false
	c.cancel(letterWrote)
	c.cancel(letterRevoke)
	c.stream.written += count
	c.stats.BytesRDMAOut += count
	c.releaseOutbound()
}

func (c *core) releaseOutbound() {
	out := &c.out
	switch {
	case out.handle == 0 || out.pieces > 0:
		return
	case out.read:
		c.conceal(out.handle)
	default:
		c.regs.Put(out.handle)
	}
	out.handle = 0
}

// outboundOver reports that the memory is the caller's again.
func (c *core) outboundOver() bool { return c.out.over && c.out.pieces == 0 }

// ownOver reports that no large write of ours is under way, and that the peer has been told what became of its own.
func (c *core) ownOver() bool {
	return (!c.out.active || c.outboundOver()) && !c.wanted(letterWrote) && !c.wanted(letterDone)
}

// takeOutbound ends the Write's part and returns how many bytes the peer has taken.
func (c *core) takeOutbound() int {
	n := c.out.taken
	c.out.active, c.out.p = false, nil
	return int(n)
}

// revokeOutbound asks for the memory back. The peer's answer, or our own count in write mode, ends the offer.
func (c *core) revokeOutbound() {
	if out := &c.out; out.active && !out.over && !out.revoked {
		out.revoked = true
		c.want(letterRevoke)
		if out.targetSet && out.pieces == 0 {
			c.endTarget()
		}
	}
}

// targeted acts on memory that the peer exposes for the next bytes.
func (c *core) targeted(id uint64, t target) error {
	out := &c.out
	if id != out.id || out.read || !out.active || out.over || out.targetSet || t.length > uint64(len(out.p))-out.sent {
		return protocolError("target of %d bytes for offer %d", t.length, id)
	}
	out.target, out.targetSet, out.written, out.stop = t, true, 0, false
	if out.revoked {
		c.endTarget()
	}
	return nil
}

// untargeted acts on the peer's wish to have its target back. If there is none, our kindWrote has crossed it.
func (c *core) untargeted(id uint64) {
	if c.out.active && c.out.id == id && c.out.targetSet {
		c.out.stop = true
		if c.out.pieces == 0 {
			c.endTarget()
		}
	}
}

// canPush reports that push would begin something.
func (c *core) canPush() bool {
	out := &c.out
	return out.active && !out.over && out.targetSet && !out.stop && out.pieces == 0 && !out.revoked &&
		c.line.sound() && c.life < lifeAborting
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
	c.sendFailed(err)
	if c.out.pieces > 0 { // else the endpoint was closed meanwhile
		c.out.pieces--
	}
}

// pushed acts on the completion of an RDMA write.
func (c *core) pushed(s provider.Status) error {
	out := &c.out
	if out.pieces == 0 {
		return nil
	}
	out.pieces--
	if out.over {
		c.releaseOutbound()
	}
	if s != provider.StatusOK {
		out.stop = true // the connection ends
	} else if !out.over && out.targetSet && (out.written == out.target.length || out.stop || out.revoked) {
		c.endTarget()
	}
	return failure(s)
}

// endTarget tells the peer how much of its target is written.
func (c *core) endTarget() {
	out := &c.out
	if out.written > 0 {
		c.stats.WriteTransfers++
	}
	out.wroteCount = out.written
	c.want(letterWrote)
	out.sent += out.written
	out.targetSet = false
}

// sendOutbound sends a letter about the outbound offer, and reports that it is settled.
func (c *core) sendOutbound(l letter) bool {
	out := &c.out
	switch {
	case !out.active:
	case l == letterWrote:
		c.putCount(out.wroteCount)
		c.post(kindWrote, 0, out.id, 8, nil, true)
		if out.sent == uint64(len(out.p)) {
			c.endOutbound(out.sent)
		}
	case out.over:
	case out.targetSet || c.wanted(letterWrote):
		return false
	default:
		c.post(kindRevoke, 0, out.id, 0, nil, true)
	}
	return true
}

// dropOutbound ends the offer after the endpoint was closed, which concealed the memory and completed the posted writes.
func (c *core) dropOutbound() {
	c.dropLate()
	if c.out.active && !c.out.over {
		c.out.pieces = 0
		c.endOutbound(c.out.sent)
	}
}
