package providertest

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"time"

	"sansock/provider"
)

var connectRules = []rule{
	{Rule{"connect/addresses", "Both ends, the request and the listener agree on the two addresses."}, provesAddresses},
	{Rule{"connect/local-address", "Dial takes the local address that it is given."}, provesLocalAddress},
	{Rule{"connect/unspecified", "A listener at the unspecified address serves every address, and knows the dialed one."},
		provesUnspecified},
	{Rule{"connect/accept-decides", "Dial succeeds no sooner than Request.Accept is called."}, provesAcceptDecides},
	{Rule{"connect/accept-context", "Request.Accept fails when its context has ended, and so does the peer's Dial."},
		provesAcceptContext},
	{Rule{"connect/dialer-gone", "Accepting a dialer that has gone fails, or the connection ends at once."}, provesDialerGone},
	{Rule{"connect/reject", "Reject makes Dial fail with StatusRefused, ECONNREFUSED and the reason."}, provesReject},
	{Rule{"connect/backlog", "Requests beyond the backlog are refused; those within it wait."}, provesBacklog},
	{Rule{"connect/no-listener", "Where nothing of this SAN listens it is StatusNoListener; refused only if TCP is, too."},
		provesNoListener},
	{Rule{"connect/context", "When the context of Dial ends, Dial returns its error at once."}, provesDialContext},
	{Rule{"connect/nothing-left", "Dials that were cancelled, and connections that were closed, leave nothing behind."},
		provesNothingLeft},
}

func provesAddresses(x *rig) {
	l := x.listen(1)
	if a := l.Addr(); a.Addr() != x.Addr.Addr() || a.Port() == 0 {
		x.fatalf("listening at %v after Listen at %v", a, x.Addr)
	}
	d := x.dialTo(l.Addr())
	r := x.request(l)
	local, remote := r.LocalAddr(), r.RemoteAddr()
	if local != l.Addr() {
		x.errorf("the request's local address is %v, the listener's %v", local, l.Addr())
	}
	if !remote.IsValid() || remote.Addr().IsUnspecified() || remote.Port() == 0 {
		x.errorf("the request's remote address is %v", remote)
	}
	a, b := x.pair(d, x.accept(r))
	for _, v := range []struct {
		what      string
		got, want netip.AddrPort
	}{
		{"dialer's remote", a.ep.RemoteAddr(), l.Addr()},
		{"dialer's local", a.ep.LocalAddr(), remote},
		{"listener's local", b.ep.LocalAddr(), local},
		{"listener's remote", b.ep.RemoteAddr(), remote},
	} {
		if v.got != v.want {
			x.errorf("the %s address is %v, it should be %v", v.what, v.got, v.want)
		}
	}
	a.talk()

	// Two connections differ.
	c, _ := x.connectTo(l)
	if c.ep.LocalAddr() == a.ep.LocalAddr() {
		x.errorf("two connections from %v to %v", c.ep.LocalAddr(), l.Addr())
	}
	a.talk()
}

func provesLocalAddress(x *rig) {
	l := x.listen(1)
	// The address with which the provider itself would dial is one that it has.
	a, _ := x.connectTo(l)
	own := netip.AddrPortFrom(a.ep.LocalAddr().Addr(), 0)
	d := x.dial(x.ctx, own, l.Addr())
	b, _ := x.pair(d, x.accept(x.request(l)))
	if got := b.ep.LocalAddr(); got.Addr() != own.Addr() || got.Port() == 0 {
		x.errorf("dialed from %v, the local address is %v", own, got)
	}
}

func provesUnspecified(x *rig) {
	any := netip.IPv6Unspecified()
	if x.Addr.Addr().Is4() {
		any = netip.IPv4Unspecified()
	}
	var (
		l   provider.Listener
		err error
	)
	x.bounded("Listen", func() { l, err = x.listener.Listen(netip.AddrPortFrom(any, 0), 1) })
	if err != nil {
		x.fatalf("Listen at %v: %v", any, err)
	}
	x.cleanup(func() { l.Close() })
	to := netip.AddrPortFrom(x.Addr.Addr(), l.Addr().Port())
	d := x.dialTo(to)
	r := x.request(l)
	if r.LocalAddr() != to {
		x.errorf("the request's local address is %v, dialed was %v", r.LocalAddr(), to)
	}
	a, b := x.pair(d, x.accept(r))
	if a.ep.RemoteAddr() != to || b.ep.LocalAddr() != to {
		x.errorf("dialed %v, the ends say %v and %v", to, a.ep.RemoteAddr(), b.ep.LocalAddr())
	}
	a.talk()
}

func provesAcceptDecides(x *rig) {
	l := x.listen(2)
	d := x.dialTo(l.Addr())
	r := x.request(l)
	x.quiet("Dial returned before Accept was called", d.pending)
	a, b := x.pair(d, x.accept(r))
	a.talk()
	b.talk()
}

func provesAcceptContext(x *rig) {
	l := x.listen(1)
	ended, cancel := context.WithCancel(x.ctx)
	cancel()
	ctx, giveUp := context.WithCancel(x.ctx)
	d := x.dial(ctx, netip.AddrPort{}, l.Addr())
	r := x.request(l)
	var (
		ep  provider.Endpoint
		err error
	)
	x.bounded("Request.Accept", func() { ep, err = r.Accept(ended) })
	if ep != nil {
		ep.Close()
	}
	if !errors.Is(err, context.Canceled) {
		x.errorf("Request.Accept with a cancelled context: %v", err)
	}
	// The peer may hear of it, or be left to its own timeout.
	for limit := time.Now().Add(x.Quiet); d.pending() && time.Now().Before(limit); {
		time.Sleep(x.Quiet / 10)
	}
	giveUp()
	if ep, err := d.wait(); err == nil {
		x.errorf("Dial succeeded with %v -> %v though Accept failed", ep.LocalAddr(), ep.RemoteAddr())
	}
	a, _ := x.connectTo(l)
	a.talk()
}

func provesDialerGone(x *rig) {
	l := x.listen(1)
	ctx, giveUp := context.WithCancel(x.ctx)
	d := x.dial(ctx, netip.AddrPort{}, l.Addr())
	r := x.request(l)
	giveUp()
	if _, err := d.wait(); !errors.Is(err, context.Canceled) {
		x.errorf("Dial with a cancelled context: %v", err)
	}
	var (
		ep  provider.Endpoint
		err error
	)
	x.bounded("Request.Accept", func() {
		ctx, cancel := context.WithTimeout(x.ctx, x.Wait/2)
		defer cancel()
		ep, err = r.Accept(ctx)
	})
	if err == nil {
		// The news was still on its way.
		x.adopt(ep, x.listener, "listener's end").gone()
	}
	a, _ := x.connectTo(l)
	a.talk()
}

func provesReject(x *rig) {
	l := x.listen(1)
	long := noisy(2*provider.MaxReject, 1)
	for _, n := range []int{0, 1, 17, provider.MaxReject, 2 * provider.MaxReject} {
		d := x.dialTo(l.Addr())
		r := x.request(l)
		reason := bytes.Clone(long[:n])
		x.bounded("Reject", func() {
			if err := r.Reject(reason); err != nil {
				x.errorf("Reject: %v", err)
			}
		})
		clear(reason) // the provider has a copy
		err := d.failed(provider.StatusRefused)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			x.errorf("%v is not ECONNREFUSED", err)
		}
		if want := long[:min(n, provider.MaxReject)]; !bytes.HasPrefix(err.Reason, want) {
			x.errorf("rejected with % x, which arrived as % x", want, err.Reason)
		}
	}
	a, _ := x.connectTo(l)
	a.talk()
}

func provesBacklog(x *rig) {
	const backlog, more = 2, 3
	l := x.listen(backlog)
	var dials []*attempt
	for range backlog + more {
		dials = append(dials, x.dialTo(l.Addr()))
	}
	waiting := func() (n int) {
		for _, d := range dials {
			if d.pending() {
				n++
			}
		}
		return n
	}
	x.await("requests beyond the backlog to be refused", func() bool { return waiting() <= backlog })
	x.quiet("a request within the backlog was refused", func() bool { return waiting() == backlog })
	for _, d := range dials {
		if !d.pending() {
			if err := d.failed(provider.StatusRefused); !errors.Is(err, syscall.ECONNREFUSED) {
				x.errorf("%v is not ECONNREFUSED", err)
			}
		}
	}
	// Those that waited are served. Which is which, their addresses tell.
	byAddr := make(map[netip.AddrPort]provider.Endpoint)
	for range backlog {
		ep := x.accept(x.request(l))
		byAddr[ep.RemoteAddr()] = ep
	}
	for _, d := range dials {
		if ep, err := d.wait(); err == nil {
			other := byAddr[ep.LocalAddr()]
			if other == nil {
				x.fatalf("nobody has accepted the connection from %v", ep.LocalAddr())
			}
			a, _ := x.pair(d, other)
			a.talk()
		}
	}
	// There is room again.
	a, _ := x.connectTo(l)
	a.talk()
}

func provesNoListener(x *rig) {
	l := x.listen(1)
	was := l.Addr()
	x.bounded("Listener.Close", func() { l.Close() })
	d := x.dialTo(was)
	if _, err := d.wait(); provider.StatusOf(err) == provider.StatusRefused {
		c, tcp := net.DialTimeout("tcp", was.String(), x.Wait)
		if tcp == nil {
			c.Close()
		}
		if !errors.Is(tcp, syscall.ECONNREFUSED) {
			x.errorf("Dial was refused, which TCP would not be (%v)", tcp)
		}
	} else {
		d.failed(provider.StatusNoListener)
	}

	// Where TCP would connect, the error must let the switch fall back.
	tcp, err := net.Listen("tcp", x.Addr.String())
	if err != nil {
		return // not an address of this host
	}
	defer tcp.Close()
	e := x.dialTo(tcp.Addr().(*net.TCPAddr).AddrPort()).failed(provider.StatusNoListener)
	if errors.Is(e, syscall.ECONNREFUSED) || errors.Is(e, syscall.ECONNRESET) || errors.Is(e, syscall.EHOSTUNREACH) {
		x.errorf("%v would keep the switch from falling back", e)
	}
}

func provesDialContext(x *rig) {
	check := func(what string, d *attempt, want error) {
		_, err := d.wait()
		if !errors.Is(err, want) {
			x.errorf("%s: %v, it should be %v", what, err, want)
		}
		var e *provider.Error
		if !errors.As(err, &e) {
			x.errorf("%s: %v (%T) is no *provider.Error", what, err, err)
		}
		if s := provider.StatusOf(err); s == provider.StatusRefused || s == provider.StatusUnreachable {
			x.errorf("%s: %v has status %q, which says something about the peer", what, err, s)
		}
	}
	// Far from full: a request whose dialer has gone may keep its place until it is accepted, as with TCP.
	l := x.listen(16)
	begin := func(ctx context.Context) *attempt { return x.dial(ctx, netip.AddrPort{}, l.Addr()) }

	ctx, cancel := context.WithCancel(x.ctx)
	cancel()
	check("cancelled before", begin(ctx), context.Canceled)

	ctx, cancel = context.WithDeadline(x.ctx, time.Now().Add(-time.Second))
	check("deadline before", begin(ctx), context.DeadlineExceeded)
	cancel()

	ctx, cancel = context.WithCancel(x.ctx)
	d := begin(ctx)
	x.quiet("Dial returned though nobody has accepted", d.pending)
	cancel()
	check("cancelled while waiting", d, context.Canceled)

	ctx, cancel = context.WithTimeout(x.ctx, x.Quiet)
	check("deadline while waiting", begin(ctx), context.DeadlineExceeded)
	cancel()
	x.connectPast(l)
}

// connectPast makes a connection with a listener that may still hold requests of dialers that have gone.
func (x *rig) connectPast(l provider.Listener) {
	d := x.dialTo(l.Addr())
	for limit := time.Now().Add(x.Wait); ; {
		r := x.request(l)
		if !d.pending() {
			_, err := d.wait()
			x.fatalf("Dial after others were cancelled: %v", err)
		}
		var (
			ep  provider.Endpoint
			err error
		)
		x.bounded("Request.Accept", func() {
			ctx, cancel := context.WithTimeout(x.ctx, x.Wait/2)
			defer cancel()
			ep, err = r.Accept(ctx)
		})
		if err == nil {
			// It is ours, or of one that has gone, and ends.
			e := x.adopt(ep, x.listener, "listener's end")
			x.await("Dial to return, or the connection to end", func() bool { return !d.pending() || e.hasEnded() }, e)
			if !e.hasEnded() {
				got, err := d.wait()
				if err != nil {
					x.fatalf("Dial after others were cancelled: %v", err)
				}
				a := x.adopt(got, x.dialer, "dialer's end")
				a.peer, e.peer, a.dialing = e, a, true
				a.talk()
				return
			}
		}
		if time.Now().After(limit) {
			x.fatalf("the listener has nothing but requests of dialers that have gone")
		}
	}
}

func provesNothingLeft(x *rig) {
	l := x.listen(4)
	round := func() {
		ctx, cancel := context.WithCancel(x.ctx)
		cancel()
		x.dial(ctx, netip.AddrPort{}, l.Addr()).wait()

		ctx, cancel = context.WithCancel(x.ctx)
		d := x.dial(ctx, netip.AddrPort{}, l.Addr())
		r := x.request(l)
		cancel()
		d.wait()
		x.bounded("Reject", func() { r.Reject(nil) }) // the error does not matter

		a, b := x.connectTo(l)
		a.expose(x.mem(a, "memory", 4096), provider.RightWrite)
		a.hear(16)
		a.close()
		b.close()
	}
	round() // what is made once is made now
	goroutines, files := runtime.NumGoroutine(), openFiles()
	const rounds = 20
	for range rounds {
		round()
	}
	left := func() bool {
		return runtime.NumGoroutine() < goroutines+rounds/2 && (files < 0 || openFiles() < files+rounds/2)
	}
	if !x.awaits(left) {
		x.errorf("after %d cancelled dials and closed connections there are %d goroutines and %d open files, before %d and %d",
			rounds, runtime.NumGoroutine(), openFiles(), goroutines, files)
	}
}

// openFiles is how many descriptors the process has, -1 where it cannot be told.
func openFiles() int {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(fds)
}
