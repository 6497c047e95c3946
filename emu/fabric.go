package emu

import (
	"math/rand/v2"
	"net/netip"
	"sync"

	"sansock/provider"
)

// Ephemeral ports, of listeners and dialers alike.
const (
	firstEphemeral = 49152
	lastEphemeral  = 65535
)

// Fabric is a name space of listeners: providers on the same one reach each other. Its methods and
// those of its providers may be called from any goroutine.
type Fabric struct {
	mu        sync.Mutex // a leaf: held for look-ups only
	listeners map[netip.AddrPort]*listener
	ports     map[uint16]int // users of every port
	conns     map[flow]struct{}
	next      uint16 // ephemeral port to try first

	// Never changed.
	shared bool // with the fabrics of that name of other processes
	name   string
}

// flow tells a connection from all others.
type flow struct{ dialer, listener netip.AddrPort }

// NewFabric returns a fabric with nothing on it.
func NewFabric() *Fabric {
	return &Fabric{
		listeners: make(map[netip.AddrPort]*listener),
		ports:     make(map[uint16]int),
		conns:     make(map[flow]struct{}),
		next:      firstEphemeral,
	}
}

// SharedFabric returns a fabric with nothing on it from this process, whose providers also reach
// those on fabrics of the same name in other processes of the user.
func SharedFabric(name string) *Fabric {
	f := NewFabric()
	f.shared, f.name = true, name
	// Others choose their ports by themselves.
	f.next = firstEphemeral + uint16(rand.IntN(lastEphemeral-firstEphemeral+1))
	return f
}

// defaultFabric is where providers are by default, so that all of a user reach each other.
var defaultFabric = SharedFabric("")

// clean brings an address into the form that the fabric's maps compare. Only link-local addresses
// have zones.
func clean(a netip.AddrPort) netip.AddrPort {
	ip := a.Addr().Unmap()
	if ip.Zone() != "" && !ip.IsLinkLocalUnicast() {
		ip = ip.WithZone("")
	}
	return netip.AddrPortFrom(ip, a.Port())
}

// overlap reports whether two listeners would serve some address both. :: serves IPv4, too.
func overlap(a, b netip.Addr) bool {
	switch {
	case a == b:
		return true
	case a.IsUnspecified():
		return a.Is6() || b.Is4()
	case b.IsUnspecified():
		return b.Is6() || a.Is4()
	}
	return false
}

// bind enters l under its address, and chooses the port if that is 0.
func (f *Fabric) bind(l *listener) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.addr.Port() == 0 {
		port := f.ephemeral(func(p uint16) bool { return f.ports[p] == 0 })
		if port == 0 {
			return provider.StatusAddrInUse
		}
		l.addr = netip.AddrPortFrom(l.addr.Addr(), port)
	}
	for a := range f.listeners {
		if a.Port() == l.addr.Port() && overlap(a.Addr(), l.addr.Addr()) {
			return provider.StatusAddrInUse
		}
	}
	f.listeners[l.addr] = l
	f.ports[l.addr.Port()]++
	return nil
}

// unbind removes l.
func (f *Fabric) unbind(l *listener) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.listeners[l.addr] == l {
		delete(f.listeners, l.addr)
		f.leave(l.addr.Port())
	}
}

func (f *Fabric) leave(port uint16) {
	if f.ports[port]--; f.ports[port] <= 0 {
		delete(f.ports, port)
	}
}

// ephemeral returns a port that suits, 0 if there is none. Called with f.mu held.
func (f *Fabric) ephemeral(suits func(uint16) bool) uint16 {
	for range lastEphemeral - firstEphemeral + 1 {
		port := f.next
		if f.next++; f.next < firstEphemeral { // wrapped
			f.next = firstEphemeral
		}
		if suits(port) {
			return port
		}
	}
	return 0
}

// find returns the listener that serves a, nil if there is none: the most specific one.
func (f *Fabric) find(a netip.AddrPort) *listener {
	f.mu.Lock()
	defer f.mu.Unlock()
	ip, port := a.Addr(), a.Port()
	if l := f.listeners[a]; l != nil {
		return l
	}
	if ip.Zone() != "" {
		if l := f.listeners[netip.AddrPortFrom(ip.WithZone(""), port)]; l != nil {
			return l
		}
	}
	if ip.Is4() {
		if l := f.listeners[netip.AddrPortFrom(netip.IPv4Unspecified(), port)]; l != nil {
			return l
		}
	}
	return f.listeners[netip.AddrPortFrom(netip.IPv6Unspecified(), port)]
}

// pickUp reserves the dialer's port for a connection to remote.
func (f *Fabric) pickUp(local, remote netip.AddrPort) (netip.AddrPort, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	free := func(p uint16) bool {
		_, taken := f.conns[flow{netip.AddrPortFrom(local.Addr(), p), remote}]
		return !taken
	}
	if local.Port() == 0 {
		port := f.ephemeral(func(p uint16) bool { return f.ports[p] == 0 })
		if port == 0 {
			port = f.ephemeral(free)
		}
		if port == 0 {
			return local, provider.StatusAddrNotAvail
		}
		local = netip.AddrPortFrom(local.Addr(), port)
	} else if !free(local.Port()) {
		return local, provider.StatusAddrInUse
	}
	f.conns[flow{local, remote}] = struct{}{}
	f.ports[local.Port()]++
	return local, nil
}

// connected reports whether there is such a connection within the process.
func (f *Fabric) connected(dialer, listener netip.AddrPort) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.conns[flow{dialer, listener}]
	return ok
}

// putDown gives back what pickUp reserved.
func (f *Fabric) putDown(local, remote netip.AddrPort) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, flow{local, remote})
	f.leave(local.Port())
}
