package sannet

import (
	"net"
	"runtime"
	"strings"
	"sync"
	"weak"

	sanswitch "sansock/switch"
)

// Info tells which path a connection took, and why.
type Info struct {
	Path     Path
	Provider string // the SAN's provider, on the SAN path
	Reason   Reason // why this side took the path
	Peer     Reason // what the peer gave as its reason, if it did
	Err      error  // the failure behind a connection over TCP, or what kept a provider out, if there was one
	Stats    Stats  // counters at the time of the call, on the SAN path
}

// String describes the path for people, such as "san via emu" or "tcp: no listener on the SAN",
// with what the peer said and the error where there are. The zero Info, of a connection that is
// not this package's, says so.
func (i Info) String() string {
	if i.Path == 0 {
		return "not a connection of sannet"
	}
	var b strings.Builder
	b.WriteString(i.Path.String())
	if i.Path == sanswitch.PathSAN {
		b.WriteString(" via " + i.Provider)
		return b.String()
	}
	b.WriteString(": " + i.Reason.String())
	if i.Peer != 0 {
		b.WriteString("; peer: " + i.Peer.String())
	}
	if i.Err != nil {
		b.WriteString(" (" + i.Err.Error() + ")")
	}
	return b.String()
}

// InfoOf returns the Info of a connection that Dial or Accept of this package returned, or of one
// that wraps such a connection, like *tls.Conn: as a method NetConn, Unwrap, Raw or
// UnderlyingConn shows, or because it embeds the other, or has it in a field and the same
// addresses. It reports false for others.
func InfoOf(c net.Conn) (info Info, ok bool) {
	findInner(c, func(c net.Conn) (found, leaf bool) {
		info, ok, leaf = ownInfo(c)
		return ok, leaf
	})
	return info, ok
}

// ownInfo returns the Info of c itself. It reports whether there is one, and whether c is of a
// kind that wraps nothing.
func ownInfo(c net.Conn) (info Info, ok, leaf bool) {
	switch c := c.(type) {
	case *Conn:
		if !c.ok() {
			return Info{}, false, true
		}
		info = infoOf(c.route)
		info.Stats = c.s.Load().Stats()
		return info, true, true
	case *net.TCPConn:
		route, ok := routes.Load(weak.Make(c))
		if !ok {
			return Info{}, false, true
		}
		return infoOf(route.(sanswitch.Route)), true, true
	}
	return Info{}, false, false
}

func infoOf(r sanswitch.Route) Info {
	return Info{Path: r.Path, Provider: r.Provider, Reason: r.Reason, Peer: r.Peer, Err: r.Err}
}

// routes has the Route of every TCP connection made here, by weak.Pointer, so that it keeps none of them alive: a
// *net.TCPConn has no room for it, and has to stay one.
var routes sync.Map

func remember(c *net.TCPConn, r sanswitch.Route) {
	key := weak.Make(c)
	routes.Store(key, r)
	runtime.AddCleanup(c, func(key weak.Pointer[net.TCPConn]) { routes.Delete(key) }, key)
}
