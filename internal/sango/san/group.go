//go:build linux

package san

import (
	"net/netip"
	"sync"

	sanswitch "sansock/switch"
)

// group is what listens on the SAN for all listeners of this process at one address, as there may
// be several with SO_REUSEPORT: whoever accepts gets what arrives next. So one of them may close
// while another takes over.
type group struct {
	key      groupKey
	l        *sanswitch.Listener
	route    sanswitch.Route
	arrivals chan sanswitch.Result
	members  int           // with groups' mutex
	deserted chan struct{} // closed when there are no members any more
	over     chan struct{} // closed when nothing arrives any more
}

type groupKey struct {
	network string
	addr    netip.AddrPort
}

var groups = struct {
	sync.Mutex
	m map[groupKey]*group
}{m: make(map[groupKey]*group)}

// join returns the group of an address, with one member more.
func (p *state) join(key groupKey) (*group, sanswitch.Route, error) {
	groups.Lock()
	defer groups.Unlock()
	if g := groups.m[key]; g != nil {
		g.members++
		return g, g.route, nil
	}
	l, route, err := p.sw.Beside(key.network, key.addr)
	if l == nil {
		return nil, route, err
	}
	g := &group{key: key, l: l, route: route, members: 1}
	g.arrivals, g.deserted, g.over = make(chan sanswitch.Result), make(chan struct{}), make(chan struct{})
	groups.m[key] = g
	go g.serve()
	return g, route, nil
}

// serve hands what arrives to whoever accepts.
func (g *group) serve() {
	defer func() {
		groups.Lock()
		if groups.m[g.key] == g {
			delete(groups.m, g.key)
		}
		groups.Unlock()
		close(g.over)
	}()
	for {
		r, err := g.l.Accept()
		if err != nil {
			return // there are no others than that it is closed, or drained
		}
		select {
		case g.arrivals <- r:
		case <-g.deserted:
			r.Session.SetLinger(0)
			r.Session.Close()
		}
	}
}

// leave takes a member away; the last one closes the listener, which resets what nobody has
// accepted.
func (g *group) leave() {
	groups.Lock()
	defer groups.Unlock()
	if g.members--; g.members > 0 {
		return
	}
	close(g.deserted)
	if groups.m[g.key] == g {
		delete(groups.m, g.key)
	}
	g.l.Close()
}

// drain takes the whole group off the SAN, but for what has arrived.
func (g *group) drain() {
	groups.Lock()
	if groups.m[g.key] == g {
		delete(groups.m, g.key)
	}
	groups.Unlock()
	g.l.Drain()
}
