package providertest

import (
	"errors"
	"syscall"

	"sansock/provider"
)

var regionRules = []rule{
	{Rule{"region/describes", "A Region is the memory that was registered, with a handle, and a descriptor if it is exposed."},
		provesRegion},
	{Rule{"region/handles", "A handle, and a descriptor, is not used again during the life of its endpoint."}, provesHandles},
	{Rule{"region/allocate", "Allocated memory is zeroed, of the size asked for, registered, and can be used."},
		provesAllocate},
	{Rule{"region/busy", "Deregistering memory of a posted operation is StatusBusy, and the operation goes on."}, provesBusy},
	{Rule{"region/unknown", "Deregistering an unknown handle is StatusAccess, and harms no other."}, provesUnknownHandle},
	{Rule{"region/rights", "Rights that the SAN cannot grant are StatusUnsupported."}, provesRights},
}

// same reports whether two slices are the same memory.
func same(a, b []byte) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

func provesRegion(x *rig) {
	x.eachWay(func(e, peer *end) {
		m := x.mem(e, "memory", 100)
		m.freeze()
		local := e.register(m)
		exposed := e.expose(m, provider.RightWrite)
		for what, r := range map[string]provider.Region{"registered": local, "exposed": exposed} {
			if !same(r.Bytes, m.b) {
				x.errorf("%s: the Bytes of %s memory are other memory, or %d bytes", e.name, what, len(r.Bytes))
			}
			if r.Handle == 0 {
				x.errorf("%s: %s memory has the zero handle", e.name, what)
			}
		}
		none := provider.Descriptor{}
		if local.Descriptor != none {
			x.errorf("%s: memory that is not exposed has a descriptor", e.name)
		}
		if exposed.Descriptor == none {
			x.errorf("%s: exposed memory has no descriptor", e.name)
		}
	})
}

func provesHandles(x *rig) {
	x.eachWay(func(e, peer *end) {
		m := x.mem(e, "memory", 4096)
		handles := make(map[provider.Handle]bool)
		descriptors := make(map[provider.Descriptor]bool)
		take := func(r provider.Region) {
			if handles[r.Handle] {
				x.fatalf("%s: handle %#x is used again", e.name, r.Handle)
			}
			handles[r.Handle] = true
			if r.Descriptor == (provider.Descriptor{}) {
				return
			}
			if descriptors[r.Descriptor] {
				x.fatalf("%s: descriptor % x is used again", e.name, r.Descriptor)
			}
			descriptors[r.Descriptor] = true
		}
		for range max(20, x.Rounds/4) {
			a, b := e.register(m), e.expose(m, provider.RightWrite)
			c, err := e.ep.Allocate(64)
			if err != nil {
				x.fatalf("%s: Allocate: %v", e.name, err)
			}
			for _, r := range []provider.Region{a, b, c} {
				take(r)
				e.deregister(r)
			}
		}
	})
}

func provesAllocate(x *rig) {
	x.eachWay(func(from, to *end) {
		for _, n := range []int{1, 100, 4096, 4097, 64 << 10} {
			for range 3 { // so that memory comes back to be used again
				r, err := to.ep.Allocate(n)
				if err != nil {
					x.fatalf("%s: Allocate(%d): %v", to.name, n, err)
				}
				if len(r.Bytes) != n || r.Handle == 0 || r.Descriptor != (provider.Descriptor{}) {
					x.fatalf("%s: Allocate(%d): %d bytes, handle %#x, descriptor % x", to.name, n, len(r.Bytes), r.Handle,
						r.Descriptor)
				}
				if i := differ(r.Bytes, make([]byte, n)); i >= 0 {
					x.fatalf("%s: Allocate(%d): byte %d is %#x", to.name, n, i, r.Bytes[i])
				}
				size := min(n, from.attr.MaxMessage, to.attr.MaxMessage, 4096)
				src := x.mem(from, "message", size)
				id := to.must(to.recv(r.Segment(n-size, size)))
				from.must(from.send(whole(from.register(src)), false))
				to.ok(id)
				if i := differ(r.Bytes[n-size:], src.b); i >= 0 {
					x.errorf("%s: byte %d of a message in allocated memory is wrong", to.name, i)
				}
				// And back from there.
				back, dst := from.hear(size)
				to.ok(to.must(to.send(r.Segment(n-size, size), false)))
				from.ok(back)
				dst.want("a message from allocated memory", 0, src.b)
				noise(r.Bytes, 1)
				to.deregister(r)
			}
		}
	})
}

func provesBusy(x *rig) {
	x.eachWay(func(from, to *end) {
		m := x.mem(to, "receive", 64)
		r := to.register(m)
		first := to.must(to.recv(r.Segment(0, 32)))
		second := to.must(to.recv(r.Segment(32, 32)))
		busy := func() {
			err := to.ep.Deregister(r.Handle)
			x.wantStatus("Deregister of the memory of a posted receive", err, provider.StatusBusy)
			if !errors.Is(err, syscall.EBUSY) {
				x.errorf("%v is not EBUSY", err)
			}
		}
		busy()
		from.say([]byte("first"), false)
		to.ok(first)
		busy()
		from.say([]byte("second"), false)
		to.ok(second)
		m.want("a message", 0, []byte("first"))
		m.want("a message", 32, []byte("second"))
		to.deregister(r)

		// Memory of a send and of a write: these may be over at once, so that it is busy or not. Never are they lost.
		target := x.mem(to, "target", 4096)
		region := to.expose(target, provider.RightWrite)
		for _, op := range []provider.Op{provider.OpSend, provider.OpWrite} {
			src := x.mem(from, "source", min(4096, from.attr.MaxRDMA, from.attr.MaxMessage))
			local := from.register(src)
			arrived, dst := to.hear(len(src.b))
			var id uint64
			if op == provider.OpSend {
				id = from.must(from.send(whole(local), false))
			} else {
				id = from.must(from.write(whole(local), region.Descriptor, 0))
				from.say([]byte{1}, false)
			}
			err := from.ep.Deregister(local.Handle)
			if err != nil {
				x.wantStatus("Deregister of the memory of a posted operation", err, provider.StatusBusy)
			}
			from.ok(id)
			to.ok(arrived)
			if op == provider.OpSend {
				dst.want("a message", 0, src.b)
			} else {
				target.want("a write", 0, src.b)
			}
			if err != nil {
				from.deregister(local)
			}
		}
	})
}

func provesUnknownHandle(x *rig) {
	x.eachWay(func(e, peer *end) {
		m := x.mem(e, "receive", 64)
		r := e.register(m)
		other, _ := x.connect()
		foreign := other.register(x.mem(other, "memory", 64))
		gone := e.register(x.mem(e, "memory", 64))
		e.deregister(gone)
		for what, h := range map[string]provider.Handle{
			"the zero handle":                0,
			"a handle that is not one":       r.Handle ^ 0x5a5a5a5a,
			"a handle of another endpoint":   foreign.Handle,
			"a handle that was deregistered": gone.Handle,
		} {
			if h == r.Handle {
				continue // the other endpoint's happens to be the same number
			}
			err := e.ep.Deregister(h)
			x.wantStatus("Deregister of "+what, err, provider.StatusAccess)
			if !errors.Is(err, syscall.EACCES) {
				x.errorf("Deregister of %s: %v is not EACCES", what, err)
			}
		}
		id := e.must(e.recv(whole(r)))
		peer.say([]byte("hello"), false)
		e.ok(id)
		e.deregister(r)
		other.deregister(foreign)
	})
}

func provesRights(x *rig) {
	x.eachWay(func(e, peer *end) {
		m := x.mem(e, "memory", 64)
		for _, rights := range []provider.Rights{1 << 7, 1<<7 | provider.RightWrite, 1 << 2} {
			_, err := e.ep.Expose(m.b, rights)
			x.wantStatus("Expose with unknown rights", err, provider.StatusUnsupported)
			if !errors.Is(err, errors.ErrUnsupported) {
				x.errorf("%v is not ErrUnsupported", err)
			}
		}
		for _, rights := range []provider.Rights{provider.RightRead, provider.RightRead | provider.RightWrite} {
			r, err := e.ep.Expose(m.b, rights)
			if e.attr.RDMAReadable {
				if err != nil {
					x.errorf("%s: Expose with rights %d: %v", e.name, rights, err)
				}
				e.deregister(r)
			} else {
				x.wantStatus("Expose for reading where nothing can be read", err, provider.StatusUnsupported)
			}
		}
		e.deregister(e.expose(m, provider.RightWrite))
	})
}
