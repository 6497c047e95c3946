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
	"net"
	"net/netip"
	"slices"
	"sync"

	"sansock/emu/shm"
	"sansock/provider"
)

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

	mu        sync.Mutex // guards the lists; above Fabric.mu
	newest    *endpoint
	listeners map[*listener]struct{}
	done      chan struct{} // closed by Close
	closed    bool
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
		faults:    newFaults(c.Fault, c.Faults),
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
		p.prefixes = hostPrefixes
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
		p.node = shm.Open(shm.Config{Name: p.name, Space: p.fabric.name})
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

func hostPrefixes() ([]netip.Prefix, error) {
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
		if x := netip.PrefixFrom(ip, ip.BitLen()); !slices.Contains(ps, x) {
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
