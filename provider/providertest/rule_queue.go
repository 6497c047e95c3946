package providertest

import (
	"errors"
	"syscall"

	"sansock/provider"
)

var queueRules = []rule{
	{Rule{"queue/recvs", "MaxRecvs receives can be posted; one more is StatusQueueFull and is not posted."}, provesMaxRecvs},
	{Rule{"queue/sends", "MaxSends sends can be posted without polling; more than that fail with StatusQueueFull at most."},
		provesMaxSends},
	{Rule{"queue/rdmas", "MaxRDMAs writes and reads can be posted without polling; more fail with StatusQueueFull at most."},
		provesMaxRDMAs},
	{Rule{"queue/inline", "Inline sends do not take the place of others."}, provesInlineFree},
}

// full checks the error of an operation for which there was no room.
func (x *rig) full(what string, err error) {
	x.wantStatus(what, err, provider.StatusQueueFull)
	if !errors.Is(err, syscall.ENOBUFS) {
		x.errorf("%s: %v is not ENOBUFS", what, err)
	}
}

func provesMaxRecvs(x *rig) {
	x.eachWay(func(from, to *end) {
		n := to.attr.MaxRecvs
		const size = 8
		dst := x.mem(to, "receives", (n+1)*size)
		region := to.register(dst)
		var recvs []uint64
		for i := range n {
			id, err := to.recv(region.Segment(i*size, size))
			if err != nil {
				x.fatalf("%s: receive %d of %d: %v", to.name, i+1, n, err)
			}
			recvs = append(recvs, id)
		}
		for range 3 {
			_, err := to.recv(region.Segment(n*size, size))
			x.full("a receive beyond MaxRecvs", err)
		}
		// Each completion makes room for one.
		for i := range min(n, 8) {
			from.say([]byte{byte(i)}, false)
			to.ok(recvs[i])
			to.must(to.recv(region.Segment(i*size, size)))
			_, err := to.recv(region.Segment(n*size, size))
			x.full("a receive beyond MaxRecvs", err)
		}
	})
}

func provesMaxSends(x *rig) {
	x.eachWay(func(from, to *end) {
		n := min(from.attr.MaxSends, to.attr.MaxRecvs)
		const size = 8
		region := to.register(x.mem(to, "receives", size))
		var recvs []uint64
		for range n {
			recvs = append(recvs, to.must(to.recv(whole(region))))
		}
		src := from.scratch(size)
		for i := range n {
			if _, err := from.send(src, false); err != nil {
				x.fatalf("%s: send %d of %d: %v", from.name, i+1, n, err)
			}
		}
		if n == from.attr.MaxSends {
			// Those before may have completed, so this one may succeed.
			r := uint64(0)
			if n < to.attr.MaxRecvs {
				r = to.must(to.recv(whole(region)))
			} else {
				to.ok(recvs[0])
				recvs = recvs[1:]
				r = to.must(to.recv(whole(region)))
			}
			if _, err := from.send(src, false); err != nil {
				x.full("a send beyond MaxSends", err)
				from.retry(func() error { _, err := from.send(src, false); return err })
			}
			to.ok(r)
		}
		for _, r := range recvs {
			to.ok(r)
		}
		from.talk()
	})
}

func provesMaxRDMAs(x *rig) {
	x.eachWay(func(from, to *end) {
		n := from.attr.MaxRDMAs
		const size = 8
		rights, ops := provider.RightWrite, []provider.Op{provider.OpWrite}
		if from.reads() {
			rights |= provider.RightRead
			ops = append(ops, provider.OpRead)
		}
		region := to.expose(x.mem(to, "target", size), rights)
		local := from.scratch((n + 1) * size)
		at := func(i int) provider.Segment {
			return provider.Segment{Bytes: local.Bytes[i*size : (i+1)*size], Handle: local.Handle}
		}
		var ids []uint64
		for i := range n {
			id, err := from.rdma(ops[i%len(ops)], at(i), region.Descriptor, 0)
			if err != nil {
				x.fatalf("%s: RDMA %d of %d: %v", from.name, i+1, n, err)
			}
			ids = append(ids, id)
		}
		for _, op := range ops {
			id, err := from.rdma(op, at(n), region.Descriptor, 0)
			if err != nil {
				x.full("an RDMA operation beyond MaxRDMAs", err)
				from.retry(func() error { id, err = from.rdma(op, at(n), region.Descriptor, 0); return err })
			}
			ids = append(ids, id)
		}
		for _, id := range ids {
			from.ok(id)
		}
		from.talk()
	})
}

func provesInlineFree(x *rig) {
	x.eachWay(func(from, to *end) {
		if from.attr.MaxInline == 0 {
			return
		}
		n := to.attr.MaxRecvs
		region := to.register(x.mem(to, "receives", 8))
		var recvs []uint64
		for range n {
			recvs = append(recvs, to.must(to.recv(whole(region))))
		}
		src := from.scratch(8)
		registered := min(n/2, from.attr.MaxSends)
		for range n - registered {
			from.must(from.inline([]byte{1}, nil, false))
		}
		for i := range registered {
			if _, err := from.send(src, false); err != nil {
				x.fatalf("%s: send %d of %d, MaxSends is %d: %v", from.name, i+1, registered, from.attr.MaxSends, err)
			}
		}
		for _, r := range recvs {
			to.ok(r)
		}
	})
}
