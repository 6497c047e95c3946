// Package emu is the emulated SAN: a provider for the addresses of this host whose NIC, wire and memory driver are
// software. It keeps the rules of hardware, and is fast enough to be the default: a message is one
// copy into the peer's posted receive, an RDMA transfer one copy between the two memories.
//
// Within the process the ends of a connection are made for each other. Between processes of one user the same is done
// by shared memory, see package shm; connections there have smaller limits, which their Attributes tell.
//
// Config has knobs that make it slow, small or faulty, for tests and study.
package emu

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"sansock/emu/shm"
	"sansock/provider"
)

// Config is the shape of an emulated SAN. Its zero value is a good default.
type Config struct {
	// Fabric is where the provider is: those on one fabric reach each other. nil: the one that all processes of the
	// user on this host share.
	Fabric *Fabric

	// SameProcess leaves other processes out. They are also where a limit below is tighter than what shared memory
	// offers, or a knob asks for what it does not have.
	SameProcess bool

	// Name is the provider's name, by default "emu".
	Name string

	// Accept says which processes of other users may connect to this one, Reach to which of them this one may connect. Empty: what
	// SANNET_ACCEPT and SANNET_REACH say, and else only those of the same user.
	Accept, Reach Peers

	// Dir is a directory that containers on this host share, in which their processes meet. Empty: what SANNET_DIR says, and else
	// there is none, and processes meet that share a network namespace. docs/containers.md has the rules.
	Dir string

	// Prefixes replaces the addresses of this host as what the provider serves.
	Prefixes func() ([]netip.Prefix, error)

	// Attributes of the provider, see provider.Attributes. 0 is the default that is given here.
	MaxMessage    int // 1 MiB; at most 1 GiB
	MaxInline     int // as MaxMessage; negative: none
	MaxRDMA       int // 1 GiB
	RDMAThreshold int // 32 KiB
	MaxRecvs      int // 4096
	MaxSends      int // 4096
	MaxRDMAs      int // 256
	Buffered      int // 128 KiB; negative: no preference

	// NoAppend leaves the extension provider.Appender out.
	NoAppend bool

	// NoRDMARead leaves the extension out, and memory cannot be exposed for reading.
	NoRDMARead bool

	// LocalRegistration makes registration of the local memory of RDMA operations a must.
	LocalRegistration bool

	// Memory limits what the proxy driver has to give.
	Memory Memory

	// Link is the shape of what this provider's endpoints send.
	Link Link

	// Completions are how completions are reported to this provider's endpoints.
	Completions Completions

	// Fault, if set, is asked at every step and makes it fail by an error, best a provider.Status or a
	// *provider.Error. It must not call the provider. Faults are rules for the same. Both may fail a step.
	Fault  func(Step) error
	Faults []Fault

	// Seed is what the random decisions of Faults come from. Keys do not: they cannot be foretold.
	Seed uint64
}

// Provider is an emulated SAN adapter.
type Provider struct {
	name     string
	fabric   *Fabric
	attr     provider.Attributes
	appends  bool // has the extension
	prefixes func() ([]netip.Prefix, error)
	proxy    *proxy
	link     Link
	slow     Completions
	faults   *faults   // nil: none
	node     *shm.Node // to other processes; nil: there are none
	dir      string    // in which containers meet; empty: none

	mu        sync.Mutex // guards the lists; above Fabric.mu
	newest    *endpoint
	listeners map[*listener]struct{}
	done      chan struct{} // closed by Close
	closed    bool
}

func or(v, def int) int {
	if v == 0 {
		return def
	}
	return max(v, 0)
}

// New opens a provider. The error is a *provider.Error about the configuration.
func New(c Config) (*Provider, error) {
	p := &Provider{
		name:      c.Name,
		fabric:    c.Fabric,
		appends:   !c.NoAppend,
		prefixes:  c.Prefixes,
		proxy:     newProxy(c.Memory),
		link:      c.Link,
		slow:      c.Completions,
		faults:    newFaults(c.Fault, c.Faults, c.Seed),
		listeners: make(map[*listener]struct{}),
		done:      make(chan struct{}),
	}
	if p.name == "" {
		p.name = "emu"
	}
	if p.fabric == nil {
		p.fabric = defaultFabric
	}
	if p.prefixes == nil {
		p.prefixes = p.hostPrefixes
	}
	p.attr = provider.Attributes{
		MaxMessage:        min(or(c.MaxMessage, 1<<20), maxMessage),
		MaxRDMA:           or(c.MaxRDMA, 1<<30),
		RDMAThreshold:     or(c.RDMAThreshold, 32<<10),
		MaxRecvs:          or(c.MaxRecvs, 4096),
		MaxSends:          or(c.MaxSends, 4096),
		MaxRDMAs:          or(c.MaxRDMAs, 256),
		Buffered:          or(c.Buffered, 128<<10),
		RDMARead:          !c.NoRDMARead,
		RDMAReadable:      !c.NoRDMARead,
		LocalRegistration: c.LocalRegistration || p.proxy.narrow,
	}
	p.attr.MaxInline = min(or(c.MaxInline, p.attr.MaxMessage), p.attr.MaxMessage)
	if p.attr.MaxMessage < provider.MaxFirstMessage || p.attr.MaxRDMA < 1 || p.attr.RDMAThreshold < 1 ||
		p.attr.MaxRecvs < 1 || p.attr.MaxSends < 1 || p.attr.MaxRDMAs < 1 {
		return nil, p.failure("open", provider.StatusUnsupported)
	}
	if p.canCross(&c) {
		if err := p.openNode(&c); err != nil {
			return nil, &provider.Error{Provider: p.name, Op: "open", Status: provider.StatusUnsupported, Err: err}
		}
	}
	return p, nil
}

// failure makes the error of an operation.
func (p *Provider) failure(op string, s provider.Status) error {
	return &provider.Error{Provider: p.name, Op: op, Status: s}
}

// ended makes the error of an operation that a context has ended.
func (p *Provider) ended(op string, err error) error {
	s := provider.StatusAborted
	if err == context.DeadlineExceeded {
		s = provider.StatusTimeout
	}
	return &provider.Error{Provider: p.name, Op: op, Status: s, Err: err}
}

// Name implements provider.Provider.
func (p *Provider) Name() string { return p.name }

// Attributes implements provider.Provider.
func (p *Provider) Attributes() provider.Attributes { return p.attr }

// Prefixes implements provider.Provider. By default these are the loopback networks and the addresses of this
// host, each by itself, as the emulated SAN goes no further.
func (p *Provider) Prefixes() ([]netip.Prefix, error) {
	if err := p.step(StepPrefixes, "prefixes"); err != nil {
		return nil, err
	}
	ps, err := p.prefixes()
	if err != nil {
		return nil, &provider.Error{Provider: p.name, Op: "prefixes", Status: provider.StatusOf(err), Err: err}
	}
	return ps, nil
}

func (p *Provider) hostPrefixes() ([]netip.Prefix, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	ps := []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("::1/128")}
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		ip, ok := netip.AddrFromSlice(n.IP)
		if ip = ip.Unmap(); !ok || ip.IsLoopback() {
			continue
		}
		bits := ip.BitLen()
		if p.dir != "" && !ip.IsLinkLocalUnicast() { // others on the same networks may be met there
			bits, _ = n.Mask.Size()
		}
		if x := netip.PrefixFrom(ip, bits); !slices.Contains(ps, x) {
			ps = append(ps, x)
		}
	}
	return ps, nil
}

// serves reports whether ip is an address of this provider.
func (p *Provider) serves(ip netip.Addr) (bool, error) {
	if ip.IsLoopback() || ip.IsUnspecified() {
		return true, nil
	}
	ps, err := p.prefixes()
	if err != nil {
		return false, err
	}
	ip = ip.WithZone("")
	return slices.ContainsFunc(ps, func(x netip.Prefix) bool { return x.Contains(ip) }), nil
}

// Listen implements provider.Provider. A backlog below 1 is taken as 1.
func (p *Provider) Listen(local netip.AddrPort, backlog int) (provider.Listener, error) {
	if err := p.step(StepListen, "listen"); err != nil {
		return nil, err
	}
	local = clean(local)
	if ok, err := p.serves(local.Addr()); err != nil {
		return nil, &provider.Error{Provider: p.name, Op: "listen", Status: provider.StatusOf(err), Err: err}
	} else if !ok {
		return nil, p.failure("listen", provider.StatusAddrNotAvail)
	}
	l := &listener{prov: p, addr: local, backlog: max(backlog, 1)}
	l.cond.L = &l.mu
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, p.failure("listen", provider.StatusClosed)
	}
	if err := p.bind(l); err != nil {
		return nil, p.failure("listen", provider.StatusOf(err))
	}
	p.listeners[l] = struct{}{}
	return l, nil
}

// Dial implements provider.Provider.
func (p *Provider) Dial(ctx context.Context, local, remote netip.AddrPort) (provider.Endpoint, error) {
	return p.DialEarly(ctx, local, remote, func(provider.Endpoint) error { return nil })
}

// DialEarly implements provider.EarlyDialer.
func (p *Provider) DialEarly(ctx context.Context, local, remote netip.AddrPort, begin func(provider.Endpoint) error) (provider.Endpoint, error) {
	if err := p.step(StepDial, "dial"); err != nil {
		return nil, err
	}
	e, err := p.dial(ctx, clean(local), clean(remote), begin)
	if err != nil {
		return nil, err
	}
	err = p.step(StepDialComplete, "dial")
	here, ok := e.(*endpoint)
	if err == nil && ok {
		err = p.roundTrip(ctx, here)
	}
	if err != nil {
		e.Close()
		return nil, err
	}
	if !ok {
		return e, nil
	}
	face := here.face()
	if err := begin(face); err != nil {
		face.Close()
		return nil, err
	}
	return face, nil
}

// dial returns an *endpoint, or one that is connected to another process.
func (p *Provider) dial(ctx context.Context, local, remote netip.AddrPort, begin func(provider.Endpoint) error) (provider.Endpoint, error) {
	if err := ctx.Err(); err != nil {
		return nil, p.ended("dial", err)
	}
	select {
	case <-p.done:
		return nil, p.failure("dial", provider.StatusClosed)
	default:
	}
	// As for TCP, the unspecified address means this host.
	if remote.Addr() == netip.IPv4Unspecified() {
		remote = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), remote.Port())
	} else if remote.Addr() == netip.IPv6Unspecified() {
		remote = netip.AddrPortFrom(netip.IPv6Loopback(), remote.Port())
	}
	l := p.fabric.find(remote)
	if l == nil && p.node == nil {
		return nil, p.failure("dial", provider.StatusNoListener)
	}
	if !local.Addr().IsValid() || local.Addr().IsUnspecified() {
		// The emulated SAN stays on this host, where an address is reached from itself, except that all of 127.0.0.0/8 is
		// reached from the first one.
		from := p.nearest(remote.Addr())
		if from.Is4() && from.IsLoopback() {
			from = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
		local = netip.AddrPortFrom(from, local.Port())
	} else if ok, err := p.serves(local.Addr()); err != nil || !ok || local.Addr().Is4() != remote.Addr().Is4() {
		return nil, p.failure("dial", provider.StatusAddrNotAvail)
	}
	if l == nil {
		return p.cross(ctx, local, remote, begin)
	}
	local, err := p.fabric.pickUp(local, remote)
	if err != nil {
		return nil, p.failure("dial", provider.StatusOf(err))
	}
	r := &request{dialer: p, to: l, local: remote, remote: local, answer: make(chan answer, 1)}
	if err := l.enqueue(r); err != nil {
		p.fabric.putDown(local, remote)
		return nil, p.failure("dial", provider.StatusOf(err))
	}
	var a answer
	select {
	case a = <-r.answer:
		if a.ep != nil {
			return a.ep, nil
		}
		p.fabric.putDown(local, remote)
		return nil, a.err
	case <-ctx.Done():
		a.err = p.ended("dial", ctx.Err())
	case <-p.done:
		a.err = p.failure("dial", provider.StatusClosed)
	}
	if r.take() {
		l.withdraw(r)
	} else if late := <-r.answer; late.ep != nil {
		// Accepted at the same moment: the connection is there, and the other end hears that it is over.
		late.ep.Close()
		return nil, a.err
	}
	p.fabric.putDown(local, remote)
	return nil, a.err
}

// nearest is the address of this host from which ip is reached: itself, unless it is another host's on a network of ours.
func (p *Provider) nearest(ip netip.Addr) netip.Addr {
	ps, err := p.prefixes()
	if p.dir == "" || err != nil {
		return ip
	}
	from := ip
	for _, x := range ps {
		if x.Addr() == ip {
			return ip
		}
		if !x.Addr().IsLoopback() && x.Contains(ip) {
			from = x.Addr()
		}
	}
	return from
}

// roundTrip waits as long as a request and its answer take on the links of e.
func (p *Provider) roundTrip(ctx context.Context, e *endpoint) error {
	if e.egress() == nil {
		return nil
	}
	t := time.NewTimer(e.egress().Latency + e.peer.egress().Latency)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return p.ended("dial", ctx.Err())
	case <-p.done:
		return p.failure("dial", provider.StatusClosed)
	}
}

// connect makes both ends of a connection.
func connect(dialer, listener *Provider, from, to netip.AddrPort) (*endpoint, *endpoint) {
	c := &conn{addr: [2]netip.AddrPort{from, to}, fab: dialer.fabric}
	c.open.Store(2)
	for i, p := range [2]*Provider{dialer, listener} {
		e := &c.ends[i]
		e.peer, e.conn, e.prov, e.attr = &c.ends[1-i], c, p, &p.attr
		e.table.Salt, e.slow = rand.Uint64(), newSlow(p.slow, e)
	}
	if dialer.link.shaped() || listener.link.shaped() {
		for i, p := range [2]*Provider{dialer, listener} {
			c.links[i] = newLink(p.link, &c.ends[i])
		}
	}
	for i := range c.ends {
		c.ends[i].prov.remember(&c.ends[i])
	}
	return &c.ends[0], &c.ends[1]
}

func (p *Provider) remember(e *endpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.older = p.newest; e.older != nil {
		e.older.newer = e
	}
	p.newest = e
}

func (p *Provider) forget(e *endpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		p.newest = e.older
	}
	if e.older != nil {
		e.older.newer = e.newer
	}
	e.older, e.newer = nil, nil
}

func (p *Provider) forgetListener(l *listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.listeners, l)
}

// Close implements provider.Provider. Dials under way end.
func (p *Provider) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	close(p.done)
	var ls []*listener
	for l := range p.listeners {
		ls = append(ls, l)
	}
	p.mu.Unlock()
	for _, l := range ls {
		l.Close()
	}
	if p.node != nil {
		return p.node.Close()
	}
	return nil
}
