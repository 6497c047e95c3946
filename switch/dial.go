package sanswitch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"sansock/internal/probe"
)

// Errors of "san" networks, below the *net.OpError.
var (
	errNoProvider = errors.New("no SAN provider for the address")
	errDisabled   = errors.New("no SAN in use")
	errControl    = errors.New("a Control function has set what a SAN connection does not have")
	errLocalAddr  = errors.New("local address not available on the SAN")
)

// Dial connects to the address on the network, with the options of d. Networks and addresses are those of net, and "san",
// "san4" and "san6", which are "tcp", "tcp4" and "tcp6" without TCP. Errors are those of net.Dialer, for "san" networks
// too.
//
// For "tcp" networks, the first address that a provider reaches is tried over the SAN, with a head start over
// TCP; the first connection wins. A failure of the SAN leaves TCP, unless the peer refuses and has but one address.
//
// Options that concern the connection itself (keep-alive, Multipath TCP, FallbackDelay) shape a connection over TCP
// alone. A Control function is called once for the address that is tried over the SAN, with a socket that is not connected, which a
// connection over TCP then uses. Its error ends the dial, unless there are other addresses. What it sets of keep-alive is in
// Result.KeepAlive. If it sets anything else that matters, as SO_MARK does, the dial stays on TCP, or on "san" networks
// fails. So do dials with Cancel, and, on other systems than Linux, all with a Control function.
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
	plain := func(address string, why Reason, err error) (Result, error) {
		return fromNet(ctx, d, network, address, Route{Path: PathTCP, Reason: why, Peer: peerReasonOf(err), Err: err})
	}
	if why := s.unfit(d); why != ReasonNone {
		return plain(address, why, nil)
	}
	if ctx.Err() != nil {
		return plain(address, ReasonCanceled, nil)
	}
	t, err := resolve(ctx, d.Resolver, network, address)
	if err != nil {
		return Result{}, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	dst, ways, why, err := s.choose(t, localOf(d))
	if len(ways) == 0 {
		return plain(t.tcp, why, err)
	}
	if err := s.negatives.get(dst.addr); err != nil {
		return plain(t.tcp, ReasonCached, err)
	}

	c := control(ctx, d, dst)
	defer c.close()
	switch d = c.dialer; {
	case c.err != nil && len(t.dests) == 1:
		return Result{}, opError(network, d, dst, c.err)
	case c.err != nil:
		return plain(t.tcp, ReasonControl, c.err)
	case c.option != nil:
		return plain(t.tcp, ReasonControl, c.option)
	}

	lead := shorten(s.lead, ctx)
	a := s.attempt(dst, ways, d)
	r := race{
		san: a.run,
		tcp: func(ctx context.Context) (Result, error) {
			return fromNet(ctx, d, network, t.tcp, Route{Path: PathTCP})
		},
		lead:   lead,
		single: len(t.dests) == 1,
		abort:  Result.drop,
	}
	a.reached = r.reached
	if !prompt(ways) {
		r.san = promptly(a.run, r.abort)
	}
	began := time.Now()
	res, sanErr, err := r.run(ctx)
	res.KeepAlive = c.keepAlive
	return s.judge(network, d, dst, began, res, sanErr, err)
}

// judge turns the outcome of a race into that of Dial. It remembers that the SAN has failed where TCP has
// not, if that says something about the next dial.
func (s *Switch) judge(network string, d *net.Dialer, dst destination, began time.Time, res Result, sanErr, err error) (Result, error) {
	var f *failure
	errors.As(sanErr, &f)
	switch {
	case err != nil && f == err:
		return Result{}, opError(network, d, dst, f.final)
	case err != nil:
		return Result{}, err
	case res.Session != nil:
		s.negatives.won(dst.addr)
		return res, nil
	case f == nil:
		res.Route.Reason = ReasonRaceLost
		s.negatives.late(dst.addr, errLate, began)
		return res, nil
	}
	res.Route.Reason, res.Route.Peer, res.Route.Err = reasonOf(f.err), peerReasonOf(f.err), f.err
	if f.lesson == lessonAvoid && f.final == nil {
		s.negatives.add(dst.addr, f.err, began)
	}
	return res, nil
}

// errLate is what is remembered of a SAN that has lost a race.
var errLate = errors.New("slower than TCP")

// dialSAN dials a "san" network: every provider, for one address of a name after the other.
func (s *Switch) dialSAN(ctx context.Context, d *net.Dialer, network, tcp, address string) (Result, error) {
	fail := func(err error) (Result, error) { return Result{}, &net.OpError{Op: "dial", Net: network, Err: err} }
	switch s.unfit(d) {
	case ReasonControl:
		return fail(errControl)
	case ReasonDisabled:
		return fail(errDisabled)
	case ReasonLocalAddr:
		return fail(&net.AddrError{Err: "mismatched local address type", Addr: d.LocalAddr.String()})
	}
	t, err := resolve(ctx, d.Resolver, tcp, address)
	if err != nil {
		return fail(err)
	}
	var first error
	for _, dst := range t.dests {
		if ctx.Err() != nil {
			return Result{}, opError(network, d, dst, contextError(ctx))
		}
		one := target{dests: []destination{dst}}
		dst, ways, why, err := s.choose(one, localOf(d))
		if len(ways) > 0 {
			c := control(ctx, d, dst)
			c.close()
			var res Result
			switch {
			case c.err != nil:
				err = c.err
			case c.option != nil:
				err = fmt.Errorf("%w (%w)", errControl, c.option)
			default:
				if res, err = s.attempt(dst, ways, d).run(ctx); err == nil {
					res.KeepAlive = c.keepAlive
					return res, nil
				}
			}
		} else if err == nil && why == ReasonLocalAddr {
			err = errLocalAddr
		} else if err == nil {
			err = errNoProvider
		} else {
			err = fmt.Errorf("%w (%w)", errNoProvider, err)
		}
		if first == nil {
			first = opError(network, d, dst, sanError(ctx, err))
		}
	}
	return Result{}, first
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
	case reasonOf(f.err) == ReasonNoListener:
		// A closed port, for programs that wait for one to open.
		return fmt.Errorf("%w (%w)", os.NewSyscallError("connect", syscall.ECONNREFUSED), f.err)
	}
	return f.err
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

// choose returns the first destination of t that providers reach from the local address, and the ways there; or
// why there is none.
func (s *Switch) choose(t target, local netip.AddrPort) (destination, []way, Reason, error) {
	why := ReasonNoProvider
	var cause error
	for _, dst := range t.dests {
		ways, err := s.table.lookup(dst.addr.Addr())
		if err != nil {
			why, cause = ReasonProviderFailed, err
		}
		if len(ways) > 0 && !local.Addr().IsUnspecified() {
			if ways = s.servedBy(ways, local.Addr()); len(ways) == 0 || local.Addr().Is4() != dst.addr.Addr().Is4() {
				ways, why = nil, ReasonLocalAddr
			}
		}
		if len(ways) > 0 {
			return dst, ways, ReasonNone, nil
		}
	}
	return t.dests[0], nil, why, cause
}

// servedBy returns those of the ways whose provider serves the local address.
func (s *Switch) servedBy(ways []way, local netip.Addr) []way {
	serving, _ := s.table.serving(local)
	var found []way
	for _, w := range ways {
		if hasRank(serving, w.rank) {
			found = append(found, w)
		}
	}
	return found
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
