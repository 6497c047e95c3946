package providertest

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"sansock/provider"
)

var protectRules = []rule{
	{Rule{"protect/bounds", "An access beyond exposed memory is refused: no byte is touched, none is read."}, provesBounds},
	{Rule{"protect/rights", "Memory exposed for reading cannot be written, nor the other way round."}, provesOnlyRights},
	{Rule{"protect/two-registrations", "Two registrations of the same memory grant each only its own right."}, provesTwoRights},
	{Rule{"protect/forged", "Descriptors that were changed or made up give no right that was not granted."}, provesForged},
	{Rule{"protect/spliced", "Descriptors put together from others reach nothing of another connection."}, provesSpliced},
	{Rule{"protect/other-connection", "A descriptor is good for the connected peer alone."}, provesOtherConnection},
	{Rule{"protect/own-memory", "A descriptor of an endpoint's own does not reach its own memory, nor the peer's."},
		provesOwnMemory},
	{Rule{"protect/not-exposed", "Memory that is registered but not exposed cannot be reached."}, provesNotExposed},
	{Rule{"protect/deregistered", "When Deregister has returned, the memory cannot be reached any more."}, provesRevoked},
	{Rule{"protect/deregister-race", "Deregister ends accesses that are under way: the memory is the owner's at once."},
		provesRevokedUnderWay},
	{Rule{"protect/closed", "When Close has returned, the memory cannot be reached any more, by no connection."},
		provesClosedMemory},
	{Rule{"protect/close-race", "Close ends accesses and messages that are under way: the memory is the owner's at once."},
		provesClosedUnderWay},
}

func provesBounds(x *rig) {
	const size = 4096
	top := ^uint64(0)
	for _, v := range []struct {
		off uint64
		n   int
	}{
		{size, 1},
		{size - 1, 2},
		{0, size + 1},
		{1, size},
		{size + 16, 16},
		{top, 1},
		{top - 7, 16},
		{top - margin + 1, margin},   // in front of the memory, if the sum wraps round
		{top - 63, 64 + size},        // around it
		{1 << 63, 8},                 // a sign bit
		{1<<63 - 4, 8},               //
		{1 << 32, 8},                 // an offset cut to 32 bits
		{1<<32 + size/2, 8},          //
		{top<<32 | size/2, 8},        //
		{uint64(size) * (1 << 8), 1}, // far away
	} {
		x.eachWay(func(in, vic *end) {
			for _, op := range opsFor(in) {
				if v.n > in.attr.MaxRDMA {
					continue
				}
				in, vic = x.alive(in, vic)
				m := x.mem(vic, "exposed memory", size)
				d := vic.expose(m, provider.RightWrite|right(op)).Descriptor
				x.refused(fmt.Sprintf("%s of %d bytes at %#x of %d", opText(op), v.n, v.off, size), in, vic,
					access{op, d, v.off, v.n}, m)
			}
		})
	}
}

func provesOnlyRights(x *rig) {
	x.eachWay(func(in, vic *end) {
		if !vic.attr.RDMAReadable {
			return
		}
		m := x.mem(vic, "memory exposed for reading", 4096)
		r := vic.expose(m, provider.RightRead)
		x.refused("a write to memory exposed for reading", in, vic, access{provider.OpWrite, r.Descriptor, 0, min(4096, in.attr.MaxRDMA)}, m)
	})
	x.eachWay(func(in, vic *end) {
		if !in.reads() {
			return
		}
		m := x.mem(vic, "memory exposed for writing", 4096)
		r := vic.expose(m, provider.RightWrite)
		x.refused("a read of memory exposed for writing", in, vic, access{provider.OpRead, r.Descriptor, 0, min(4096, in.attr.MaxRDMA)}, m)
	})
}

func provesTwoRights(x *rig) {
	for _, op := range []provider.Op{provider.OpWrite, provider.OpRead} {
		x.eachWay(func(in, vic *end) {
			if !in.reads() {
				return
			}
			m := x.mem(vic, "memory exposed twice", 4096)
			w := vic.expose(m, provider.RightWrite)
			r := vic.expose(m, provider.RightRead)
			in.ok(in.must(in.write(in.scratch(64), w.Descriptor, 0)))
			in.talk()
			in.ok(in.must(in.rdma(provider.OpRead, in.scratch(64), r.Descriptor, 0)))
			d := w.Descriptor
			if op == provider.OpWrite {
				d = r.Descriptor
			}
			x.refused("the registration with the other right", in, vic, access{op, d, 64, 64}, m)
		})
	}
}

func provesForged(x *rig) {
	const size = 4096
	a, b := x.connect()
	ways := [2][2]*end{{a, b}, {b, a}}
	try := func(i int, what string, op provider.Op, forge func(d provider.Descriptor) provider.Descriptor) {
		in, vic := x.alive(ways[i%2][0], ways[i%2][1])
		ways[i%2] = [2]*end{in, vic}
		other := right(provider.OpWrite)
		if op == provider.OpWrite {
			other = provider.RightRead
		}
		// Where nothing can be exposed for reading, there is no right to be had by forging.
		private := x.mem(vic, "registered memory", size)
		vic.register(private)
		stay := []*mem{private}
		d := provider.Descriptor{}
		switch {
		case op == provider.OpRead && !in.reads():
			return
		case vic.attr.RDMAReadable:
			m := x.mem(vic, "memory without the right", size)
			d = vic.expose(m, other).Descriptor
			stay = append(stay, m)
		default:
			// It may be written, so only what is around it is not to be touched.
			d = vic.expose(x.mem(vic, "exposed memory", size), provider.RightWrite).Descriptor
		}
		x.refused(what, in, vic, access{op, forge(d), 0, 64}, stay...)
	}
	for i := range len(provider.Descriptor{}) {
		for j, op := range []provider.Op{provider.OpWrite, provider.OpRead} {
			flip := byte(0x01)
			if (i+j)%2 == 0 {
				flip = 0x80
			}
			try(i, fmt.Sprintf("%s with byte %d of the descriptor changed", opText(op), i), op,
				func(d provider.Descriptor) provider.Descriptor { d[i] ^= flip; return d })
		}
	}
	for i, op := range []provider.Op{provider.OpWrite, provider.OpRead} {
		for j := range 6 {
			try(i+j, opText(op)+" with a descriptor that is made up", op, func(d provider.Descriptor) provider.Descriptor {
				switch j {
				case 0:
					return provider.Descriptor{}
				case 1:
					copy(d[:], bytes.Repeat([]byte{0xff}, len(d)))
				default:
					noise(d[:], x.seed())
				}
				return d
			})
		}
	}
}

func provesSpliced(x *rig) {
	const size = 4096
	for i, cut := range []int{4, 8, 12, 16, 20} {
		for j := range 2 {
			in, vic := x.connect()
			_, other := x.connect()
			if i%2 == 1 {
				vic, in = in, vic
				other = other.peer
			}
			mine := x.mem(vic, "memory exposed to the intruder", size)
			his := x.mem(vic, "memory exposed to another", size)
			d := vic.expose(mine, provider.RightWrite).Descriptor
			e := other.expose(his, provider.RightWrite).Descriptor
			if j == 1 {
				d, e = e, d
			}
			copy(d[cut:], e[cut:])
			x.refused(fmt.Sprintf("a write with a descriptor spliced at %d", cut), in, vic,
				access{provider.OpWrite, d, 0, 64}, his)
		}
	}
}

func provesOtherConnection(x *rig) {
	for _, op := range []provider.Op{provider.OpWrite, provider.OpRead} {
		x.eachWay(func(in, vic *end) {
			if op == provider.OpRead && !in.reads() {
				return
			}
			other, _ := x.another(vic)
			// Both endpoints of the victim's side have registered the same, so that numbers that count from
			// something are the same.
			mine := x.mem(vic, "memory exposed to the intruder", 4096)
			his := x.mem(other, "memory exposed to another", 4096)
			rights := provider.RightWrite | right(op)
			vic.expose(mine, rights)
			d := other.expose(his, rights).Descriptor
			other.peer.ok(other.peer.must(other.peer.rdma(op, other.peer.scratch(16), d, 0)))
			other.talk()
			x.refused(opText(op)+" with the descriptor of another connection", in, vic, access{op, d, 0, 64}, mine, his)
			other.talk() // which has nothing to do with it
		})
	}
}

func provesOwnMemory(x *rig) {
	for _, op := range []provider.Op{provider.OpWrite, provider.OpRead} {
		x.eachWay(func(in, vic *end) {
			if op == provider.OpRead && !in.reads() {
				return
			}
			rights := provider.RightWrite
			if in.attr.RDMAReadable {
				rights |= provider.RightRead
			}
			own := x.mem(in, "intruder's exposed memory", 4096)
			his := x.mem(vic, "victim's exposed memory", 4096)
			vic.expose(his, provider.RightWrite|right(op))
			x.refused(opText(op)+" with the intruder's own descriptor", in, vic,
				access{op, in.expose(own, rights).Descriptor, 0, 64}, own, his)
		})
	}
}

func provesNotExposed(x *rig) {
	for _, op := range []provider.Op{provider.OpWrite, provider.OpRead} {
		for i := range 2 {
			x.eachWay(func(in, vic *end) {
				if op == provider.OpRead && !in.reads() {
					return
				}
				m := x.mem(vic, "registered memory", 4096)
				r := vic.register(m)
				d := r.Descriptor
				if i == 1 {
					binary.LittleEndian.PutUint64(d[:], uint64(r.Handle))
					binary.LittleEndian.PutUint64(d[8:], uint64(r.Handle))
				}
				x.refused(opText(op)+" of memory that is not exposed", in, vic, access{op, d, 0, 64}, m)
			})
		}
	}
}

func provesRevoked(x *rig) {
	for _, op := range []provider.Op{provider.OpWrite, provider.OpRead} {
		for _, again := range []bool{false, true} {
			x.eachWay(func(in, vic *end) {
				if op == provider.OpRead && !in.reads() {
					return
				}
				m := x.mem(vic, "deregistered memory", 4096)
				r := vic.expose(m, right(op))
				in.ok(in.must(in.rdma(op, in.scratch(64), r.Descriptor, 0)))
				in.talk()
				vic.deregister(r)
				noise(m.b, x.seed())
				if again {
					// A new registration in the place of the old one, of the same and of other memory.
					next := vic.expose(m, right(op))
					vic.expose(x.mem(vic, "other memory", 4096), right(op))
					in.ok(in.must(in.rdma(op, in.scratch(64), next.Descriptor, 0)))
					in.talk()
				}
				x.refused(opText(op)+" of deregistered memory", in, vic, access{op, r.Descriptor, 64, 64}, m)
			})
		}
	}
}

func provesRevokedUnderWay(x *rig) {
	for round := range max(2, x.Rounds/100) {
		for _, op := range []provider.Op{provider.OpWrite, provider.OpRead} {
			x.eachWay(func(in, vic *end) {
				if op == provider.OpRead && !in.reads() {
					return
				}
				m := x.mem(vic, "deregistered memory", min(256<<10, in.attr.MaxRDMA))
				r := vic.expose(m, right(op))
				h := x.hammer(in, op, r.Descriptor, len(m.b))
				h.hot(x, round)
				vic.deregister(r)
				noise(m.b, x.seed()) // the owner's again: a secret from now on
				m.freeze()
				h.stop()
				x.settle(in, vic)
				m.check("after Deregister")
				for _, l := range h.local {
					if op == provider.OpRead && m.leaked(l.b) {
						x.errorf("the peer has read what was written to the memory after Deregister")
					}
				}
			})
		}
	}
}

func provesClosedMemory(x *rig) {
	for _, op := range []provider.Op{provider.OpWrite, provider.OpRead} {
		x.eachWay(func(in, vic *end) {
			if op == provider.OpRead && !in.reads() {
				return
			}
			m := x.mem(vic, "memory of a closed endpoint", 4096)
			d := vic.expose(m, right(op)).Descriptor
			in.ok(in.must(in.rdma(op, in.scratch(64), d, 0)))
			in.talk()
			third, fourth := x.another(in)
			vic.close()
			noise(m.b, x.seed())
			x.refused(opText(op)+" of memory of an endpoint that is closed", in, vic, access{op, d, 0, 64}, m)
			// Nor by another way between the two.
			x.refused(opText(op)+" with the descriptor of a connection that is closed", third, fourth, access{op, d, 0, 64}, m)
		})
	}
}

func provesClosedUnderWay(x *rig) {
	for round := range max(2, x.Rounds/100) {
		for _, op := range []provider.Op{provider.OpWrite, provider.OpRead} {
			x.eachWay(func(in, vic *end) {
				if op == provider.OpRead && !in.reads() {
					return
				}
				m := x.mem(vic, "memory of a closed endpoint", min(256<<10, in.attr.MaxRDMA))
				d := vic.expose(m, right(op)).Descriptor
				n := min(64, vic.attr.MaxRecvs)
				size := min(16<<10, in.attr.MaxMessage)
				dst := x.mem(vic, "receives of a closed endpoint", n*size)
				region := vic.register(dst)
				for i := range n {
					vic.must(vic.recv(region.Segment(i*size, size)))
				}
				src := in.scratch(size)
				h := x.hammer(in, op, d, len(m.b))
				sent := x.spawn(func() {
					for range n {
						id, err := in.send(src, true)
						if err != nil {
							x.wantStatus("a send", err, provider.StatusDisconnected)
							return
						}
						if c := in.completion(id); c.Status != provider.StatusOK {
							return
						}
					}
				})
				h.hot(x, round)
				vic.close()
				noise(m.b, x.seed())
				noise(dst.b, x.seed())
				m.freeze()
				dst.freeze()
				h.stop()
				sent()
				in.gone()
				m.check("after Close")
				dst.check("after Close")
				for _, l := range h.local {
					if op == provider.OpRead && m.leaked(l.b) {
						x.errorf("the peer has read what was written to the memory after Close")
					}
				}
			})
		}
	}
}
