//go:build ofi && cgo && linux

package ofi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"sansock/provider"
)

// withEnvironment fills in what c leaves open.
func (c Config) withEnvironment() Config {
	if c.Fabric == "" {
		c.Fabric = os.Getenv("SANNET_OFI_FABRIC")
	}
	if c.Device == "" {
		c.Device = os.Getenv("SANNET_OFI_DEVICE")
	}
	return c
}

// The fabrics that are known to work.
const (
	fabricVerbs = "verbs"
	fabricTCP   = "tcp"
)

// preferred are the fabrics to choose from, best first.
var preferred = []string{fabricVerbs}

// Sizes of an endpoint's queues, as far as the fabric has as much. A session uses less, and memory goes with them.
const (
	maxRecvs   = 32
	maxSends   = 16
	maxRDMAs   = 8
	maxInlines = 35 // more than a peer has receives
	spareTx    = 4  // the first message, and fences
	spareRx    = 4  // the receive for the peer's first message
	queueTx    = maxSends + maxRDMAs + maxInlines + spareTx
	queueRx    = maxRecvs + spareRx
)

const (
	maxMessage = 1 << 20
	maxRDMA    = 1 << 30
	buffered   = 1 << 20

	// From where on RDMA pays off. Over sockets every byte is copied anyway, and a fence costs a round trip.
	threshold        = 64 << 10
	thresholdSockets = 512 << 10
)

// portTries bounds how often Listen chooses a port.
const portTries = 64

// Provider is an opened fabric.
type Provider struct {
	kind  string // fabricVerbs or fabricTCP
	infos []*info
	attr  provider.Attributes
	fab   *fabric
	done  chan struct{} // closed by Close

	mu        sync.Mutex // a leaf
	listeners map[*listener]struct{}
	closed    bool
}

// Open opens the provider. The error is a *provider.Error that is errors.ErrUnsupported and says what is missing: the
// library, or a device.
func Open(c Config) (provider.Provider, error) {
	c = c.withEnvironment()
	p, err := open(c)
	if err != nil {
		return nil, &provider.Error{Provider: name, Op: "open", Status: provider.StatusUnsupported, Err: err}
	}
	return p, nil
}

func open(c Config) (*Provider, error) {
	if err := load(); err != nil {
		return nil, err
	}
	kinds := preferred
	switch c.Fabric {
	case "":
	case fabricVerbs, fabricTCP:
		kinds = []string{c.Fabric}
	default:
		return nil, fmt.Errorf("fabric %q is not one of %s, %s", c.Fabric, fabricVerbs, fabricTCP)
	}
	var errs []error
	for _, kind := range kinds {
		p, err := openKind(kind, c.Device)
		if err == nil {
			return p, nil
		}
		errs = append(errs, fmt.Errorf("%s (libfabric %s): %w", kind, libraryVersion(), err))
	}
	if c.Fabric == "" {
		errs = append(errs, errors.New("the tcp fabric has to be asked for"))
	}
	return nil, reasons(errs)
}

// reasons are errors in one line.
type reasons []error

func (r reasons) Error() string {
	var all []string
	for _, err := range r {
		all = append(all, err.Error())
	}
	return strings.Join(all, "; ")
}

func (r reasons) Unwrap() []error { return r }

func openKind(kind, device string) (*Provider, error) {
	all, err := discover(kind, queueTx, queueRx)
	if err != nil {
		return nil, err
	}
	var found []*info
	var names []string
	for _, i := range all {
		if !i.addr.IsValid() || i.addr.IsLinkLocalUnicast() || i.addr.IsUnspecified() {
			continue
		}
		names = append(names, i.domain)
		same := func(o *info) bool { return o.addr == i.addr }
		if (device == "" || device == i.domain) && !slices.ContainsFunc(found, same) {
			found = append(found, i)
		}
	}
	if len(found) == 0 {
		slices.Sort(names)
		if names = slices.Compact(names); len(names) == 0 {
			return nil, errors.New("no device with an IP address")
		}
		return nil, fmt.Errorf("no device %q, but %s", device, strings.Join(names, ", "))
	}
	// One fabric of the library's does for all devices. It is opened by the first one: the verbs provider of 1.17 does
	// not find some of the others.
	fab, err := newFabric(all[0])
	if err != nil {
		return nil, err
	}
	p := &Provider{kind: kind, infos: found, fab: fab, done: make(chan struct{}), listeners: make(map[*listener]struct{})}
	p.attr = p.attributes(found[0])
	for _, i := range found[1:] {
		a := p.attributes(i)
		p.attr.MaxMessage = max(p.attr.MaxMessage, a.MaxMessage)
		p.attr.MaxRDMA = max(p.attr.MaxRDMA, a.MaxRDMA)
		p.attr.MaxInline = max(p.attr.MaxInline, a.MaxInline)
		p.attr.MaxRecvs = max(p.attr.MaxRecvs, a.MaxRecvs)
		p.attr.MaxSends = max(p.attr.MaxSends, a.MaxSends)
		p.attr.MaxRDMAs = max(p.attr.MaxRDMAs, a.MaxRDMAs)
	}
	return p, nil
}

// attributes are those of an endpoint on i.
func (p *Provider) attributes(i *info) provider.Attributes {
	rdma := threshold
	if p.kind == fabricTCP {
		rdma = thresholdSockets
	}
	return provider.Attributes{
		MaxMessage:        int(min(i.message, maxMessage)),
		MaxRDMA:           int(min(i.message, maxRDMA)),
		RDMAThreshold:     rdma,
		MaxInline:         i.inject,
		MaxRecvs:          max(min(maxRecvs, i.rx-spareRx), 1),
		MaxSends:          max(min(maxSends, i.tx*maxSends/queueTx), 1),
		MaxRDMAs:          max(min(maxRDMAs, i.tx*maxRDMAs/queueTx), 1),
		RDMARead:          true,
		RDMAReadable:      true,
		LocalRegistration: i.registers,
		Buffered:          buffered,
	}
}

// Name implements provider.Provider.
func (p *Provider) Name() string { return name }

// Attributes implements provider.Provider.
func (p *Provider) Attributes() provider.Attributes { return p.attr }

// String names the fabric and its devices.
func (p *Provider) String() string {
	var devices []string
	for _, i := range p.infos {
		devices = append(devices, fmt.Sprintf("%s at %s", i.domain, i.addr))
	}
	return fmt.Sprintf("libfabric %s %s: %s", libraryVersion(), p.kind, strings.Join(devices, ", "))
}

func (p *Provider) failure(op string, s provider.Status, err error) error {
	return &provider.Error{Provider: name, Op: op, Status: s, Err: err}
}

// ended makes the error of an operation that a context has ended.
func (p *Provider) ended(op string, err error) error {
	s := provider.StatusAborted
	if err == context.DeadlineExceeded {
		s = provider.StatusTimeout
	}
	return p.failure(op, s, err)
}

// Prefixes implements provider.Provider. The library looks for devices and addresses once, so what comes later is not among
// them, but what has gone is not either.
func (p *Provider) Prefixes() ([]netip.Prefix, error) {
	var found []netip.Prefix
	err := p.networks(func(_ *info, n netip.Prefix) { found = append(found, n) })
	return found, err
}

// networks gives every address that is there now, with its network.
func (p *Provider) networks(give func(*info, netip.Prefix)) error {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return p.failure("prefixes", provider.StatusLink, err)
	}
	for _, i := range p.infos {
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			if !ok {
				continue
			}
			ip, _ := netip.AddrFromSlice(n.IP)
			if ones, _ := n.Mask.Size(); ip.Unmap() == i.addr {
				give(i, netip.PrefixFrom(i.addr, ones))
				break
			}
		}
	}
	return nil
}

// at returns the device with the address.
func (p *Provider) at(a netip.Addr) *info {
	if k := slices.IndexFunc(p.infos, func(i *info) bool { return i.addr == a }); k >= 0 {
		return p.infos[k]
	}
	return nil
}

// toward returns the device to reach an address by: that which has it, that of its network, or one of its family.
func (p *Provider) toward(a netip.Addr) *info {
	if i := p.at(a); i != nil {
		return i
	}
	var (
		best *info
		bits = -1
	)
	p.networks(func(i *info, n netip.Prefix) {
		if n.Contains(a) && n.Bits() > bits {
			best, bits = i, n.Bits()
		}
	})
	for _, i := range p.infos {
		if best == nil && i.addr.Is4() == a.Is4() {
			best = i
		}
	}
	return best
}

// carrier is the fabric's port for one of the SAN's.
func (p *Provider) carrier(port uint16) uint16 {
	if p.kind == fabricTCP && port != 0 {
		return carrier(port)
	}
	return port
}

// clean makes an address comparable with those of devices.
func clean(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
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
	p.fab.release()
	return nil
}

// acquire keeps the fabric open for one more endpoint or listener.
func (p *Provider) acquire() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.fab.acquire()
	}
	return !p.closed
}

// remember makes l end with the provider, unless that has ended already.
func (p *Provider) remember(l *listener) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.listeners[l] = struct{}{}
	}
	return !p.closed
}

func (p *Provider) forget(l *listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.listeners, l)
}
