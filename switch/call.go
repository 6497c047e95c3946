package sanswitch

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"
)

// call is a dial on a "tcp" network: the SAN at every address that it may reach, raced by TCP.
type call struct {
	s       *Switch
	d       *net.Dialer // its limits of time are the context's
	network string
	dests   []destination
	asks    []*ask
	passed  Route         // why there is no ask for the other destinations
	lead    time.Duration // how long TCP waits for the SAN, and for the question where there is one
	tracer  *tracer
	tcp     dialer[destination] // dials one of them over TCP
	race    race

	mu sync.Mutex // guards what comes of the asks
}

// ask is the question whether one destination is on the SAN.
type ask struct {
	destination
	ways    []way
	control *control

	state askState
	began time.Time
	f     *failure // where it failed
}

// askState is what has become of an ask.
type askState uint8

const (
	askOpen   askState = iota // nobody has asked
	askBegun                  // there is no answer yet
	askWaits                  // the peer has no room yet
	askFailed                 // by itself, not because the dial was over
	askWon
)

// newCall returns a call to the destinations, which are to be looked at next.
func (s *Switch) newCall(
	ctx context.Context, d *net.Dialer, network string, dests []destination,
) *call {
	plain := *d
	plain.Timeout, plain.Deadline = 0, time.Time{}
	c := &call{s: s, d: &plain, network: network, dests: dests, lead: shorten(s.lead, ctx)}
	c.passed = Route{Path: PathTCP, Reason: ReasonNoProvider}
	c.tcp = func(ctx context.Context, dst destination) (Result, error) {
		d := c.controlOf(dst).dialer(c.d)
		return fromNet(ctx, d, c.network, dst.shown.String(), Route{Path: PathTCP})
	}
	return c
}

// look makes an ask for each destination to which choose finds ways.
func (c *call) look(
	ctx context.Context, choose func(context.Context, destination) ([]way, Reason, error),
) {
	cached := false
	for _, dst := range c.dests {
		ways, why, err := choose(ctx, dst)
		neg, known := c.s.negatives.get(dst.addr)
		switch {
		case len(ways) > 0 && !known:
			control := newControl(ctx, c.d, c.network, dst)
			c.asks = append(c.asks, &ask{destination: dst, ways: ways, control: control})
		case len(ways) > 0:
			c.passed, cached = neg.route(), true
		case !cached && why != ReasonNoProvider:
			c.passed.Reason, c.passed.Err = why, err
		}
	}
}

// choose returns the ways to dst, or why there are none.
func (c *call) choose(ctx context.Context, dst destination) ([]way, Reason, error) {
	ways, why, err := c.s.choose(ctx, dst, localOf(c.d), c.lead)
	if len(ways) == 0 {
		return nil, why, err
	}
	if dst.isUnspecified() && hasLocalIP(c.d) {
		return nil, ReasonLocalAddr, nil // the kernel goes to the local address then
	}
	if err := localError(c.d, c.network, c.network, dst); err != nil {
		return nil, ReasonLocalAddr, err
	}
	return ways, ReasonNone, nil
}

// controlOf returns the Control function for dst, nil where there is none that the SAN calls too.
func (c *call) controlOf(dst destination) *control {
	for _, a := range c.asks {
		if a.shown == dst.shown {
			return a.control
		}
	}
	return nil
}

// run makes the call. The error is a *failure where that is final.
func (c *call) run(ctx context.Context) (Result, error) {
	defer c.finish()
	if len(c.asks) == 0 {
		res, err := c.overTCP(ctx)
		if err == nil {
			res.Route = c.passed
		}
		return res, err
	}
	c.race = race{
		first:  c.overSAN,
		second: c.overTCP,
		lead:   c.lead,
		single: len(c.dests) == 1,
		abort:  Result.drop,
	}
	for _, a := range c.asks {
		if !prompt(a.ways) {
			c.race.first = promptly(c.overSAN, c.race.abort)
		}
	}
	res, _, err := c.race.run(ctx)
	if err != nil {
		return Result{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.learn(res)
	if res.Session == nil {
		res.Route = c.route(res.Conn)
	}
	return res, nil
}

// finish ends what is left of the call.
func (c *call) finish() {
	for _, a := range c.asks {
		a.control.close()
	}
	c.tracer.finish(c.d)
}

// overTCP dials the destinations over TCP.
func (c *call) overTCP(ctx context.Context) (Result, error) {
	one := func(ctx context.Context, dst destination) (Result, error) {
		c.tracer.begin(dst)
		res, err := c.tcp(ctx, dst)
		c.tracer.end(dst, err)
		return res, err
	}
	first, then := split(c.d, c.network, c.dests, c.dests[0].is4())
	return inOrder(ctx, first, then, delayOf(c.d), one)
}

// overSAN asks the destinations over the SAN, for no longer altogether than one may take.
func (c *call) overSAN(ctx context.Context) (Result, error) {
	if len(c.asks) > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, connectTimeout)
		defer cancel()
	}
	first, then := split(c.d, c.network, c.asks, c.dests[0].is4())
	return inOrder(ctx, first, then, delayOf(c.d), c.ask)
}

// ask asks one destination.
func (c *call) ask(ctx context.Context, a *ask) (Result, error) {
	c.mu.Lock()
	a.state, a.began = askBegun, time.Now()
	c.mu.Unlock()
	c.tracer.begin(a.destination)
	if f := a.control.refusal(); f != nil {
		c.answered(ctx, a, f)
		return Result{}, f
	}
	at := c.s.attempt(a.destination, a.ways, c.d)
	at.reached = c.race.reached
	at.waits = func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		a.state = askWaits
	}
	res, err := at.run(ctx)
	c.answered(ctx, a, err)
	if err != nil {
		return Result{}, err
	}
	res.KeepAlive = a.control.ask().keepAlive
	return res, nil
}

// answered notes what came of an ask.
func (c *call) answered(ctx context.Context, a *ask, err error) {
	if err == nil {
		c.tracer.end(a.destination, nil)
	} else if c.tracer != nil {
		c.tracer.fail(a.destination, opError(c.network, c.d, a.destination, sanError(ctx, err)))
	}
	var f *failure
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		a.state = askWon
	case errors.As(err, &f) && ctx.Err() != context.Canceled:
		a.state, a.f = askFailed, f
	}
}

// learn remembers what the call says about the next one to the same destinations, now that it has
// a connection. It needs to be called with locked mutex.
func (c *call) learn(res Result) {
	for _, a := range c.asks {
		switch {
		case a.state == askWon && res.Session != nil:
			c.s.negatives.won(a.addr)
		case a.state == askBegun:
			c.s.negatives.late(a.addr, errLate, a.began)
		case a.state == askFailed && a.f.final == nil:
			c.s.negatives.failed(a.addr, a.f, a.began)
		}
	}
}

// route is why the connection is over TCP: what kept it from the SAN at its address, or else at
// the first one asked. It needs to be called with locked mutex.
func (c *call) route(conn net.Conn) Route {
	best := c.asks[0]
	if len(c.asks) > 1 {
		if to, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
			i := slices.IndexFunc(c.asks, func(a *ask) bool { return a.addr == dialedAddr(to, c.network) })
			best = c.asks[max(i, 0)]
		}
	}
	switch best.state {
	case askFailed:
		err := best.f.err
		return Route{Path: PathTCP, Reason: reasonOf(err), Peer: peerReasonOf(err), Err: err}
	case askWaits:
		return Route{Path: PathTCP, Reason: ReasonPeerDeclined, Peer: ReasonBusy}
	}
	return Route{Path: PathTCP, Reason: ReasonRaceLost}
}
