package emu

import (
	"net/netip"

	"sansock/emu/shm"
	"sansock/provider"
)

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
		faults:    newFaults(c.Faults),
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
