package sanswitch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"sansock/internal/probe"
)

// Errors of "san" networks, below the *net.OpError.
var (
	errNoProvider = errors.New("no SAN provider for the address")
	errNotInUse   = errors.New("no SAN in use")
	errControl    = errors.New("a Control function has set what a SAN connection does not have")
	errLocalAddr  = errors.New("local address not available on the SAN")
)

// Dial connects to the address on the network, with the options of d. Networks and addresses are those of net, and "san",
// "san4" and "san6", which are "tcp", "tcp4" and "tcp6" without TCP. Errors are those of net.Dialer, for "san" networks
// too, and so are the hooks of net/http/httptrace that are called.
//
// For "tcp" networks every address that a provider reaches is asked over the SAN, in the order
// and with the delays of net, and TCP, with all addresses, races that after a head start; the
// first connection wins. A failure of the SAN leaves TCP, unless the peer refuses and has but one
// address.
//
// Options that concern the connection itself (keep-alive, Multipath TCP) shape a connection over
// TCP alone. A Control function is called once for each address that is asked, as net does, with a
// socket that is not connected, which a connection over TCP then uses: its error forbids the
// address. What it sets of keep-alive is in Result.KeepAlive. If it sets anything else that
// matters, as SO_MARK does, the address is left to TCP, or on "san" networks fails. A dial with
// Cancel stays on TCP, and on other systems than Linux so does one with a Control function.
func (s *Switch) Dial(ctx context.Context, d *net.Dialer, network, address string) (Result, error) {
	tcp, ok := tcpNetwork(network)
	if !ok {
		return fromNet(ctx, d, network, address, Route{Path: PathOther, Reason: ReasonNetwork})
	}
	ctx, cancel := withDeadline(ctx, d)
	defer cancel()
	if isSAN(network) {
		return s.dialSAN(ctx, d, network, tcp, address)
	}
	return s.dialTCP(ctx, d, network, address)
}

// dialTCP dials a "tcp" network.
func (s *Switch) dialTCP(ctx context.Context, d *net.Dialer, network, address string) (Result, error) {
	if why := s.unfit(d); why != ReasonNone {
		r := Route{Path: PathTCP, Reason: why}
		if why == ReasonDisabled {
			r.Err = s.whyDisabled()
		}
		return fromNet(ctx, d, network, address, r)
	}
	if ctx.Err() != nil {
		return fromNet(ctx, d, network, address, Route{Path: PathTCP, Reason: ReasonCanceled})
	}
	t, ctx := newTracer(ctx, network)
	dests, err := resolve(ctx, d, network, address)
	if err != nil {
		return Result{}, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	c := s.newCall(ctx, d, network, dests)
	c.tracer = t
	c.look(ctx, c.choose)
	res, err := c.run(ctx)
	if f, ok := err.(*failure); ok {
		return Result{}, opError(network, d, dests[0], f.final)
	}
	return res, err
}

// errLate is what is remembered of a SAN that has lost a race.
var errLate = errors.New("slower than TCP")

// dialSAN dials a "san" network: every provider, for one address of a name after the other.
func (s *Switch) dialSAN(ctx context.Context, d *net.Dialer, network, tcp, address string) (Result, error) {
	fail := func(err error) (Result, error) { return Result{}, &net.OpError{Op: "dial", Net: network, Err: err} }
	switch s.unfit(d) {
	case ReasonControl:
		return fail(errNoSocket)
	case ReasonDisabled:
		return fail(s.errDisabled())
	case ReasonLocalAddr:
		return fail(&net.AddrError{Err: "mismatched local address type", Addr: d.LocalAddr.String()})
	}
	t, ctx := newTracer(ctx, network)
	defer t.finish(d)
	dests, err := resolve(ctx, d, tcp, address)
	if err != nil {
		return fail(err)
	}
	one := func(ctx context.Context, dst destination) (Result, error) {
		t.begin(dst)
		if err := localError(d, network, tcp, dst); err != nil {
			t.end(dst, err)
			return Result{}, err
		}
		res, err := s.dialOverSAN(ctx, d, tcp, dst)
		if err != nil {
			err = opError(network, d, dst, sanError(ctx, err))
		}
		t.end(dst, err)
		return res, err
	}
	first, then := split(d, network, dests, dests[0].is4())
	return inOrder(ctx, first, then, delayOf(d), one)
}

// dialOverSAN dials one address over every provider that reaches it.
func (s *Switch) dialOverSAN(
	ctx context.Context, d *net.Dialer, tcp string, dst destination,
) (Result, error) {
	ways, why, err := s.choose(ctx, dst, localOf(d), connectTimeout)
	switch {
	case len(ways) > 0:
	case err != nil:
		return Result{}, fmt.Errorf("%w (%w)", errNoProvider, err)
	case why == ReasonLocalAddr:
		return Result{}, errLocalAddr
	default:
		return Result{}, errNoProvider
	}
	control := newControl(ctx, d, tcp, dst)
	defer control.close()
	v := control.ask()
	switch {
	case v.err != nil:
		return Result{}, v.err
	case v.option != nil:
		return Result{}, fmt.Errorf("%w (%w)", errControl, v.option)
	}
	res, err := s.attempt(dst, ways, d).run(ctx)
	if err != nil {
		return Result{}, err
	}
	res.KeepAlive = v.keepAlive
	return res, nil
}

// sanError returns the cause that a *net.OpError has for the failure of a dial that has no other path.
func sanError(ctx context.Context, err error) error {
	var f *failure
	switch {
	case ctx.Err() != nil:
		return contextError(ctx)
	case !errors.As(err, &f):
		return err
	case f.final != nil:
		return f.final
	case rejectionOf(f.err) == rejectFull:
		return fmt.Errorf("%w (%w)", os.NewSyscallError("connect", syscall.ETIMEDOUT), f.err)
	case reasonOf(f.err) == ReasonNoListener:
		// A closed port, for programs that wait for one to open.
		return fmt.Errorf("%w (%w)", os.NewSyscallError("connect", syscall.ECONNREFUSED), f.err)
	}
	return f.err
}

// errDisabled is the error of a "san" network without a SAN.
func (s *Switch) errDisabled() error {
	if why := s.whyDisabled(); why != nil {
		return fmt.Errorf("%w (%w)", errNotInUse, why)
	}
	return errNotInUse
}

// unfit returns the reason for which the options rule out the SAN, or ReasonNone.
func (s *Switch) unfit(d *net.Dialer) Reason {
	switch {
	case s.disabled():
		return ReasonDisabled
	case hasCancel(d) || hasControl(d) && !probe.Supported:
		return ReasonControl
	}
	if _, ok := d.LocalAddr.(*net.TCPAddr); d.LocalAddr != nil && !ok {
		return ReasonLocalAddr
	}
	return ReasonNone
}

//lint:ignore SA1019 who still sets it gets what net makes of it
func hasCancel(d *net.Dialer) bool { return d.Cancel != nil }

// localOf returns the local address to dial from, which is unspecified where any will do.
func localOf(d *net.Dialer) netip.AddrPort {
	la, _ := d.LocalAddr.(*net.TCPAddr)
	if la == nil {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	}
	ap := la.AddrPort()
	if !ap.Addr().IsValid() {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), ap.Port())
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// choose returns the ways to dst from the local address, or why there are none. It waits for them
// no longer than patience.
func (s *Switch) choose(
	ctx context.Context, dst destination, local netip.AddrPort, patience time.Duration,
) ([]way, Reason, error) {
	ways, err := s.table.lookup(ctx, dst.addr.Addr(), patience)
	switch {
	case err != nil:
		return nil, ReasonProviderFailed, err
	case len(ways) == 0:
		return nil, ReasonNoProvider, nil
	case local.Addr().IsUnspecified():
		return ways, ReasonNone, nil
	}
	serving, _ := s.table.serving(ctx, local.Addr(), patience)
	ways = slices.DeleteFunc(ways, func(w way) bool { return !hasRank(serving, w.rank) })
	if len(ways) == 0 || local.Addr().Is4() != dst.addr.Addr().Is4() {
		return nil, ReasonLocalAddr, nil
	}
	return ways, ReasonNone, nil
}

func (s *Switch) attempt(dst destination, ways []way, d *net.Dialer) *attempt {
	return &attempt{session: s.session, dst: dst.addr, ways: ways, local: localOf(d)}
}

// fromNet dials with net alone.
func fromNet(ctx context.Context, d *net.Dialer, network, address string, r Route) (Result, error) {
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return Result{}, err
	}
	return Result{Conn: c, Route: r}, nil
}

// opError is the error that net gives for a dial that has failed with err.
func opError(network string, d *net.Dialer, dst destination, err error) error {
	return &net.OpError{Op: "dial", Net: network, Source: d.LocalAddr, Addr: dst.shown, Err: err}
}

// withDeadline returns ctx with the deadline that results from it and from the options, as net has it.
func withDeadline(ctx context.Context, d *net.Dialer) (context.Context, context.CancelFunc) {
	deadline := d.Deadline
	if d.Timeout != 0 {
		if t := time.Now().Add(d.Timeout); deadline.IsZero() || t.Before(deadline) {
			deadline = t
		}
	}
	if deadline.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, deadline)
}

// shorten returns the lead, or half of the time that ctx leaves: TCP needs some too.
func shorten(lead time.Duration, ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		lead = min(lead, time.Until(deadline)/2)
	}
	return lead
}

// contextError is what net makes of a context that has ended. Its errors are not exported, so net is asked:
// it does not connect then.
func contextError(ctx context.Context) error {
	var oe *net.OpError
	if _, err := new(net.Dialer).DialContext(ctx, "tcp", "127.0.0.1:0"); errors.As(err, &oe) {
		return oe.Err
	}
	return ctx.Err()
}
