package providertest

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"sansock/provider"
)

var listenRules = []rule{
	{Rule{"listen/port-taken", "A port that is taken is EADDRINUSE, until its listener is closed."}, provesPortTaken},
	{Rule{"listen/not-ours", "An address that the provider does not serve is StatusAddrNotAvail."}, provesNotOurs},
	{Rule{"listen/close-wakes", "Close wakes Accept, which then returns net.ErrClosed for ever. Closing again does nothing."},
		provesCloseWakesAccept},
	{Rule{"listen/close-rejects", "Close rejects the requests that wait."}, provesCloseRejects},
	{Rule{"listen/close-spares", "Close leaves the connections alone that were made before."}, provesCloseSpares},
	{Rule{"listen/dialers", "Dials at the same time are each connected to an end of their own."}, provesDialers},
}

func provesPortTaken(x *rig) {
	l := x.listen(1)
	at := l.Addr()
	again, err := x.listener.Listen(at, 1)
	if err == nil {
		again.Close()
	}
	if e := x.wantError("Listen at a port that is taken", err, provider.StatusAddrInUse); !errors.Is(e, syscall.EADDRINUSE) {
		x.errorf("%v is not EADDRINUSE", e)
	}
	a, _ := x.connectTo(l)
	a.talk()
	a.close()
	other := x.listen(1)
	if other.Addr() == at {
		x.errorf("two listeners at %v", at)
	}
	x.bounded("Listener.Close", func() { l.Close() })
	// Some systems take a moment to give the port back.
	for limit := time.Now().Add(x.Wait); ; time.Sleep(x.Quiet) {
		l, err := x.listener.Listen(at, 1)
		if err == nil {
			x.cleanup(func() { l.Close() })
			a, _ := x.connectTo(l)
			a.talk()
			return
		}
		if time.Now().After(limit) {
			x.fatalf("Listen at %v, which was closed: %v", at, err)
		}
	}
}

func provesNotOurs(x *rig) {
	ps, err := x.listener.Prefixes()
	if err != nil {
		x.fatalf("Prefixes: %v", err)
	}
	foreign := netip.MustParseAddr("192.0.2.77") // set aside for documentation
	for _, p := range ps {
		if p.Addr() == foreign {
			x.skip("the provider has even the address for documentation")
		}
	}
	l, err := x.listener.Listen(netip.AddrPortFrom(foreign, 0), 1)
	if err == nil {
		l.Close()
	}
	x.wantError("Listen at a foreign address", err, provider.StatusAddrNotAvail)
}

func provesCloseWakesAccept(x *rig) {
	l := x.listen(1)
	errs := make(chan error, 2)
	for range 2 {
		x.loose.Go(func() {
			defer x.rescue()
			_, err := l.Accept()
			errs <- err
		})
	}
	x.quiet("Accept returned without a request", func() bool { return len(errs) == 0 })
	for range 2 {
		x.bounded("Listener.Close", func() {
			if err := l.Close(); err != nil {
				x.errorf("Listener.Close: %v", err)
			}
		})
	}
	for range 2 {
		x.bounded("Accept after Close", func() {
			if err := <-errs; !errors.Is(err, net.ErrClosed) {
				x.errorf("Accept, woken by Close: %v", err)
			}
		})
		x.bounded("Accept after Close", func() {
			if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
				x.errorf("Accept after Close: %v", err)
			}
		})
	}
}

func provesCloseRejects(x *rig) {
	l := x.listen(1)
	// With a backlog of one, the first refusal proves that the other request waits.
	first, second := x.dialTo(l.Addr()), x.dialTo(l.Addr())
	x.await("a request beyond the backlog to be refused", func() bool { return !first.pending() || !second.pending() })
	if second.pending() {
		first, second = second, first
	}
	second.failed(provider.StatusRefused)
	if !first.pending() {
		x.fatalf("both requests were refused, the backlog is 1")
	}
	x.bounded("Listener.Close", func() { l.Close() })
	first.failed(provider.StatusRefused)
}

func provesCloseSpares(x *rig) {
	l := x.listen(1)
	a, b := x.connectTo(l)
	x.bounded("Listener.Close", func() { l.Close() })
	x.quiet("the connection ended with its listener", func() bool { return !a.hasEnded() && !b.hasEnded() }, a, b)
	a.talk()
}

func provesDialers(x *rig) {
	const n = 6
	l := x.listen(n)
	var dials []*attempt
	for range n {
		dials = append(dials, x.dialTo(l.Addr()))
	}
	accepted := make(map[netip.AddrPort]provider.Endpoint)
	for range n {
		ep := x.accept(x.request(l))
		if accepted[ep.RemoteAddr()] != nil {
			x.errorf("two connections from %v", ep.RemoteAddr())
		}
		accepted[ep.RemoteAddr()] = ep
	}
	var ends []*end
	for _, d := range dials {
		ep, err := d.wait()
		if err != nil {
			x.fatalf("Dial: %v", err)
		}
		if accepted[ep.LocalAddr()] == nil {
			x.fatalf("nobody has accepted the connection from %v", ep.LocalAddr())
		}
		a, _ := x.pair(d, accepted[ep.LocalAddr()])
		ends = append(ends, a)
	}
	for _, e := range ends {
		e.talk()
	}
}
