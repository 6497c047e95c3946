package providertest

import (
	"errors"
	"syscall"

	"sansock/provider"
)

var localRules = []rule{
	{Rule{"local/unregistered", "Messages from and to memory that is not registered are StatusLocal, and not posted."},
		provesUnregistered},
	{Rule{"local/other-endpoint", "A registration is of no use to another endpoint."}, provesForeignHandle},
	{Rule{"local/bounds", "A segment that is not within its registration is StatusLocal."}, provesLocalBounds},
	{Rule{"local/deregistered", "A registration that has been ended is StatusLocal."}, provesStaleHandle},
	{Rule{"local/rdma", "RDMA needs registered local memory exactly where LocalRegistration says so."}, provesLocalRDMA},
}

// notLocal checks that an end posts nothing with s.
func (e *end) notLocal(what string, s provider.Segment) {
	x := e.x
	check := func(op string, err error) {
		x.wantStatus(op+" with "+what, err, provider.StatusLocal)
		if !errors.Is(err, syscall.EFAULT) {
			x.errorf("%s with %s: %v is not EFAULT", op, what, err)
		}
	}
	_, err := e.recv(s)
	check("a receive", err)
	_, err = e.send(s, false)
	check("a send", err)
	if !e.attr.LocalRegistration {
		return
	}
	target := e.peer.expose(x.mem(e.peer, "target", 4096), provider.RightWrite)
	_, err = e.write(s, target.Descriptor, 0)
	check("a write", err)
	if e.reads() {
		target = e.peer.expose(x.mem(e.peer, "target", 4096), provider.RightRead)
		_, err = e.rdma(provider.OpRead, s, target.Descriptor, 0)
		check("a read", err)
	}
}

func provesUnregistered(x *rig) {
	x.eachWay(func(e, _ *end) {
		m := x.mem(e, "memory", 64)
		m.freeze()
		e.notLocal("memory that is not registered", provider.Segment{Bytes: m.b})
		e.notLocal("a handle that is not one", provider.Segment{Bytes: m.b, Handle: 0x5bd1e995})
		e.talk()
	})
}

func provesForeignHandle(x *rig) {
	x.eachWay(func(e, peer *end) {
		other, otherPeer := x.connect()
		for _, owner := range []*end{peer, other, otherPeer} {
			m := x.mem(e, "memory", 64)
			m.freeze()
			r := provider.Region{}
			if owner.prov == e.prov {
				r = owner.register(m) // the very memory
			} else {
				r = owner.register(x.mem(owner, "memory", 64)) // it may be in another process
			}
			e.notLocal("a handle of another endpoint", provider.Segment{Bytes: m.b, Handle: r.Handle})
		}
		e.talk()
	})
}

func provesLocalBounds(x *rig) {
	x.eachWay(func(e, peer *end) {
		m := x.mem(e, "memory", 3*64)
		m.freeze()
		r, err := e.ep.Register(m.b[64:128])
		if err != nil {
			x.fatalf("Register: %v", err)
		}
		for what, s := range map[string][]byte{
			"a segment before its registration": m.b[0:64],
			"a segment behind its registration": m.b[128:192],
			"a segment that begins too early":   m.b[63:128],
			"a segment that ends too late":      m.b[64:129],
			"a segment around its registration": m.b,
			"other memory":                      x.mem(e, "memory", 64).b,
		} {
			e.notLocal(what, provider.Segment{Bytes: s, Handle: r.Handle})
		}
		// What is within is good.
		m.thaw()
		id := e.must(e.recv(provider.Segment{Bytes: m.b[65:127], Handle: r.Handle}))
		peer.say([]byte("hello"), false)
		e.ok(id)
		m.want("a message", 65, []byte("hello"))
	})
}

func provesStaleHandle(x *rig) {
	x.eachWay(func(e, peer *end) {
		m := x.mem(e, "memory", 64)
		r := e.register(m)
		id := e.must(e.recv(whole(r)))
		peer.say([]byte("hello"), false)
		e.ok(id)
		e.deregister(r)
		m.freeze()
		e.notLocal("memory that was deregistered", whole(r))
		again := e.register(m)
		e.notLocal("an old handle of memory that was registered again", whole(r))
		m.thaw()
		id = e.must(e.recv(whole(again)))
		peer.say([]byte("again"), false)
		e.ok(id)
		m.want("a message", 0, []byte("again"))
	})
}

func (e *end) deregister(r provider.Region) {
	e.x.bounded("Deregister", func() {
		if err := e.ep.Deregister(r.Handle); err != nil {
			e.x.errorf("%s: Deregister: %v", e.name, err)
		}
	})
}

func provesLocalRDMA(x *rig) {
	x.eachWay(func(e, peer *end) {
		m := x.mem(e, "memory", 64)
		target := x.mem(peer, "target", 64)
		region := peer.expose(target, provider.RightWrite)
		id, err := e.write(provider.Segment{Bytes: m.b}, region.Descriptor, 0)
		if e.attr.LocalRegistration {
			x.wantStatus("a write from memory that is not registered", err, provider.StatusLocal)
			return
		}
		e.ok(e.must(id, err))
		e.talk() // now it is in place
		target.want("a write from memory that is not registered", 0, m.b)
	})
}
