package providertest

import (
	"bytes"

	"sansock/provider"
)

var rdmaRules = []rule{
	{Rule{"rdma/write", "An RDMA write moves exactly its bytes to exactly its offset."}, provesWrite},
	{Rule{"rdma/read", "An RDMA read moves exactly the bytes at its offset, and changes nothing at the owner."}, provesRead},
	{Rule{"rdma/write-order", "When a message arrives, every RDMA write posted before it is in place."}, provesWriteOrder},
	{Rule{"rdma/largest", "Transfers of MaxRDMA bytes work."}, provesLargestRDMA},
	{Rule{"rdma/too-long", "Transfers longer than MaxRDMA are StatusTooLong, and nothing is posted."}, provesTooLongRDMA},
	{Rule{"rdma/both-ways", "Writes and reads in both directions at once do not disturb each other."}, provesBothWays},
	{Rule{"rdma/repeated", "Exposed memory takes any number of accesses, and is there for the owner's own operations, too."},
		provesRepeated},
}

func provesWrite(x *rig) {
	x.eachWay(func(from, to *end) {
		size := min(64<<10, from.attr.MaxRDMA)
		target := x.mem(to, "target", size)
		region := to.expose(target, provider.RightWrite)
		for _, v := range [][2]int{{0, size}, {0, 1}, {1, 1}, {size - 1, 1}, {size / 2, size - size/2}, {0, size / 3},
			{size / 3, size / 5}} {
			off, n := v[0], v[1]
			if n == 0 || off+n > size {
				continue
			}
			want := bytes.Clone(target.b)
			src := x.mem(from, "source", n)
			src.freeze()
			copy(want[off:], src.b)
			from.ok(from.must(from.write(whole(from.register(src)), region.Descriptor, uint64(off))))
			from.talk() // what was written before a message is there
			if !target.want("after a write", 0, want) {
				return
			}
		}
	})
}

func provesRead(x *rig) {
	x.eachWay(func(from, to *end) {
		if !from.reads() {
			return
		}
		size := min(64<<10, from.attr.MaxRDMA)
		source := x.mem(to, "source", size)
		source.freeze()
		region := to.expose(source, provider.RightRead)
		for _, v := range [][2]int{{0, size}, {0, 1}, {1, 1}, {size - 1, 1}, {size / 2, size - size/2}, {size / 3, size / 5}} {
			off, n := v[0], v[1]
			if n == 0 || off+n > size {
				continue
			}
			dst := x.mem(from, "destination", n)
			from.ok(from.must(from.rdma(provider.OpRead, whole(from.register(dst)), region.Descriptor, uint64(off))))
			if !dst.want("after a read", 0, source.b[off:off+n]) {
				return
			}
		}
		from.talk()
	})
}

func provesWriteOrder(x *rig) {
	x.eachWay(func(from, to *end) {
		to.single = true // look as soon as the completion of the message has come
		for _, size := range []int{8, 4096, 64 << 10, 1 << 20} {
			if size > from.attr.MaxRDMA {
				continue
			}
			target := x.mem(to, "target", size)
			region := to.expose(target, provider.RightWrite)
			src := x.mem(from, "source", size)
			local := from.register(src)
			recv := to.register(x.mem(to, "receive", 8))
			for range max(3, min(x.Rounds, (8<<20)/size)/8) {
				r := to.must(to.recv(whole(recv)))
				w := from.must(from.write(whole(local), region.Descriptor, 0))
				from.say([]byte{1}, true)
				to.ok(r)
				if !target.want("a write before the message that has arrived", 0, src.b) {
					return
				}
				from.ok(w)
				noise(src.b, x.seed())
			}
		}
	})
}

func provesLargestRDMA(x *rig) {
	x.eachWay(func(from, to *end) {
		n := min(from.attr.MaxRDMA, big)
		target := x.mem(to, "target", n)
		src := x.mem(from, "source", n)
		from.ok(from.must(from.write(whole(from.register(src)), to.expose(target, provider.RightWrite).Descriptor, 0)))
		from.talk()
		target.want("a large write", 0, src.b)
		if from.reads() {
			dst := x.mem(from, "destination", n)
			region := to.expose(target, provider.RightRead)
			from.ok(from.must(from.rdma(provider.OpRead, whole(from.register(dst)), region.Descriptor, 0)))
			dst.want("a large read", 0, target.b)
		}
	})
}

func provesTooLongRDMA(x *rig) {
	x.eachWay(func(from, to *end) {
		n := from.attr.MaxRDMA + 1
		if from.attr.MaxRDMA >= big {
			return
		}
		target := x.mem(to, "target", n)
		local := from.scratch(n)
		target.freeze()
		_, err := from.write(local, to.expose(target, provider.RightWrite).Descriptor, 0)
		x.wantStatus("a write of MaxRDMA+1 bytes", err, provider.StatusTooLong)
		if from.reads() {
			_, err := from.rdma(provider.OpRead, local, to.expose(target, provider.RightRead).Descriptor, 0)
			x.wantStatus("a read of MaxRDMA+1 bytes", err, provider.StatusTooLong)
		}
		from.talk()
		target.check("after a write that is too long")
	})
}

func provesBothWays(x *rig) {
	a, b := x.connect()
	var joins []func()
	for _, e := range a.both() {
		n := min(32<<10, e.attr.MaxRDMA)
		target := x.mem(e.peer, "target", n)
		in := e.peer.expose(target, provider.RightWrite)
		var out provider.Region
		source := x.mem(e.peer, "source", n)
		if e.reads() {
			source.freeze()
			out = e.peer.expose(source, provider.RightRead)
		}
		src, dst := x.mem(e, "source", n), x.mem(e, "destination", n)
		from, into := e.register(src), e.register(dst)
		joins = append(joins, x.spawn(func() {
			for range max(4, x.Rounds/10) {
				noise(src.b, x.seed())
				e.ok(e.must(e.write(whole(from), in.Descriptor, 0)))
				if e.reads() {
					noise(dst.b, x.seed())
					e.ok(e.must(e.rdma(provider.OpRead, whole(into), out.Descriptor, 0)))
					if !dst.want("after a read", 0, source.b) {
						x.giveUp()
					}
				}
			}
		}))
		x.cleanup(func() { target.want("after many writes", 0, src.b) })
	}
	for _, join := range joins {
		join()
	}
	a.talk()
	b.talk()
}

func provesRepeated(x *rig) {
	x.eachWay(func(from, to *end) {
		m := x.mem(to, "exposed memory", 256)
		region := to.expose(m, provider.RightWrite)
		for range 3 {
			src := x.mem(from, "source", 256)
			from.must(from.write(whole(from.register(src)), region.Descriptor, 0))
			from.talk()
			if !m.want("a write", 0, src.b) {
				return
			}
			r, dst := from.hear(256)
			to.ok(to.must(to.send(whole(region), false)))
			from.ok(r)
			dst.want("a message from exposed memory", 0, src.b)
		}
		r := to.must(to.recv(whole(region)))
		from.say([]byte("into exposed memory"), false)
		to.ok(r)
		m.want("a message", 0, []byte("into exposed memory"))
	})
}
