package emu

import (
	"context"
	"errors"
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

// Prefixes implements provider.Provider. By default these are the loopback networks and the
// addresses of this host, each by itself, as the emulated SAN goes no further.
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

// step is the *provider.Error of a step of the provider itself, nil for success.
func (p *Provider) step(s Step, op string) error {
	err := p.faults.at(s)
	if err == nil {
		return nil
	}
	var e *provider.Error
	if errors.As(err, &e) {
		return err
	}
	e = &provider.Error{Provider: p.name, Op: op, Status: provider.StatusOf(err)}
	if _, plain := err.(provider.Status); !plain {
		e.Err = err
	}
	return e
}
