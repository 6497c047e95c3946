package providertest

import (
	"errors"

	"sansock/provider"
)

var extensionRules = []rule{
	{Rule{"extension/unknown", "Unknown extensions are an error that is errors.ErrUnsupported."}, provesUnknownExtension},
	{Rule{"extension/rdma-read", "GUIDRDMARead is an RDMAReader exactly where Attributes.RDMARead says so."},
		provesReadExtension},
	{Rule{"extension/cache", "GUIDCacheCallback is a CacheInvalidator, or unsupported."}, provesCacheExtension},
	{Rule{"extension/spinner", "GUIDSpinner is a Spinner, or unsupported. Spin returns soon, takes nothing and arms nothing."},
		provesSpinner},
	{Rule{"extension/sleeper", "GUIDSleeper is a Sleeper, or unsupported. Sleep ends when a message arrives, when interrupted, and on Close."},
		provesSleeper},
	{Rule{"extension/appender", "GUIDAppender is an Appender, or unsupported. Unread may be called at any time, and changes nothing here."},
		provesAppender},
}

func (e *end) unsupported(id provider.GUID) {
	ext, err := e.ep.Extension(id)
	if err == nil || !errors.Is(err, errors.ErrUnsupported) {
		e.x.errorf("%s: Extension(% x): %v, it should be unsupported", e.name, id, err)
	}
	if ext != nil {
		e.x.errorf("%s: Extension(% x) is a %T beside the error %v", e.name, id, ext, err)
	}
}

func provesUnknownExtension(x *rig) {
	a, b := x.connect()
	for _, e := range []*end{a, b} {
		e.unsupported(provider.GUID{})
		for _, known := range []provider.GUID{provider.GUIDRDMARead, provider.GUIDCacheCallback, provider.GUIDSpinner,
			provider.GUIDSleeper, provider.GUIDAppender} {
			for i := range known {
				id := known
				id[i] ^= 0x10
				e.unsupported(id)
			}
		}
	}
}

func provesReadExtension(x *rig) {
	a, b := x.connect()
	for _, e := range []*end{a, b} {
		if e.attr.RDMARead {
			e.reader()
		} else {
			e.unsupported(provider.GUIDRDMARead)
		}
	}
}

func provesCacheExtension(x *rig) {
	x.eachWay(func(e, peer *end) {
		ext, err := e.ep.Extension(provider.GUIDCacheCallback)
		if err != nil {
			e.unsupported(provider.GUIDCacheCallback)
			return
		}
		c, ok := ext.(provider.CacheInvalidator)
		if !ok {
			x.fatalf("%s: Extension(GUIDCacheCallback) is a %T, no CacheInvalidator", e.name, ext)
		}
		m := x.mem(e, "memory", 8192)
		r := e.expose(m, provider.RightWrite)
		e.deregister(r)
		c.InvalidateCache(m.b)
		c.InvalidateCache(m.b[100:200])
		m.freeze()
		x.refused("a write to memory that was deregistered and dropped from the cache", peer, e,
			access{provider.OpWrite, r.Descriptor, 0, 64}, m)
	})
}

func provesSpinner(x *rig) {
	x.eachWay(func(from, to *end) {
		ext, err := to.ep.Extension(provider.GUIDSpinner)
		if err != nil {
			to.unsupported(provider.GUIDSpinner)
			return
		}
		s, ok := ext.(provider.Spinner)
		if !ok {
			x.fatalf("%s: Extension(GUIDSpinner) is a %T, no Spinner", to.name, ext)
		}
		spin := func() (ready bool) {
			x.bounded("Spin", func() { ready = s.Spin() })
			return ready
		}
		region := to.register(x.mem(to, "receive", 16))
		first, second := to.must(to.recv(whole(region))), to.must(to.recv(whole(region)))
		if spin() && to.poll() == 0 {
			x.errorf("%s: Spin reports completions, and there are none", to.name)
		}
		to.arm(provider.WakeAny)
		if spin() && to.poll() == 0 {
			x.errorf("%s: Spin reports completions, and there are none", to.name)
		}
		from.say([]byte{1}, true)
		to.wakes("a message after a Spin", 1)
		for range 3 {
			spin() // may be false where the provider has found that it does not pay off
		}
		to.poll()
		if !to.isDone(first) {
			x.errorf("%s: woken, then Spin, and Poll has no message", to.name)
		}
		from.say([]byte{2}, true)
		x.await("a message", func() bool { spin(); to.poll(); return to.isDone(second) })
		to.staysAt("after Spin, not armed", 1)
		to.close()
		spin()
	})
}

func provesAppender(x *rig) {
	x.eachWay(func(from, to *end) {
		a := from.appender()
		if a == nil {
			from.unsupported(provider.GUIDAppender)
			return
		}
		a.Unread(false)
		r, dst := to.hear(64)
		from.opened([]byte{1})
		a.Unread(true)
		from.appends(a, []byte{2}) // else it would be of no use
		a.Unread(true)
		to.arrives(r, dst, []byte{1, 2})
		to.hear(64)
		from.opened([]byte{3})
		from.close()
		a.Unread(true)
		a.Unread(false)
		to.gone()
		if c := to.log[len(to.log)-1]; c.Status != provider.StatusDisconnected {
			x.errorf("%s: %s, though the peer has closed", to.name, describe(c))
		}
	})
}

func provesSleeper(x *rig) {
	x.eachWay(func(from, to *end) {
		ext, err := to.ep.Extension(provider.GUIDSleeper)
		if err != nil {
			to.unsupported(provider.GUIDSleeper)
			return
		}
		s, ok := ext.(provider.Sleeper)
		if !ok {
			x.fatalf("%s: Extension(GUIDSleeper) is a %T, no Sleeper", to.name, ext)
		}
		// A provider may give its seats to those alone who wait often.
		seat := func() bool {
			if spin, err := to.ep.Extension(provider.GUIDSpinner); err == nil {
				for range 32 {
					spin.(provider.Spinner).Spin()
				}
			}
			return s.Seat()
		}
		region := to.register(x.mem(to, "receive", 16))
		first := to.must(to.recv(whole(region)))
		if !seat() {
			return
		}
		x.bounded("Sleep with something ready", func() { s.Sleep(true) })
		// sleeps calls Sleep, and has it end.
		sleeps := func(what string, end func()) {
			if !seat() {
				x.errorf("%s: Sleep did not give the seat back", to.name)
				return
			}
			ready := to.ep.Arm(provider.WakeAny)
			over := make(chan struct{})
			go func() {
				defer close(over)
				s.Sleep(ready)
			}()
			end()
			x.bounded("Sleep, "+what, func() { <-over })
		}
		sleeps("interrupted", s.Interrupt)
		s.Interrupt() // the next one, which returns for no reason then
		sleeps("interrupted before", func() {})
		sleeps("with a message arriving", func() { from.say([]byte{1}, true) })
		to.poll()
		if !to.isDone(first) {
			x.errorf("%s: Sleep returned, and there is no message", to.name)
		}
		sleeps("at Close", to.close)
		if s.Seat() {
			x.bounded("Sleep after Close", func() { s.Sleep(false) })
		}
	})
}
