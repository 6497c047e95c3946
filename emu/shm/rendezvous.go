//go:build linux

package shm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sansock/provider"
)

// Rendezvous is an address at which other processes find this one.
type Rendezvous struct {
	n    *Node
	addr netip.AddrPort
	to   Acceptor
	held held // proves that we listen
	ls   []listening
	once sync.Once
	over sync.WaitGroup // until nothing is accepted any more
}

// listening is one of its sockets.
type listening struct {
	*net.UnixListener
	where where
}

// name is the abstract socket of an address. Abstract names belong to a network namespace, as addresses do,
// leave nothing behind, and may be taken by any user, which is why both sides look at the credentials of the other.
func (n *Node) name(a netip.AddrPort) string {
	s := "@sansock/2/" + n.Space + "/" + a.String()
	if len(s) > 100 {
		h := sha256.Sum256([]byte(s))
		s = "@sansock/2#" + hex.EncodeToString(h[:])
	}
	return s
}

// listenAt listens at a socket, on which nobody can send a descriptor until he is trusted.
func listenAt(name string) (*net.UnixListener, error) {
	c := net.ListenConfig{Control: noRights}
	l, err := c.Listen(context.Background(), "unixpacket", name)
	if err != nil {
		return nil, err
	}
	return l.(*net.UnixListener), nil
}

// noRights is a net.ListenConfig's or net.Dialer's Control.
func noRights(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) { setOptionFD(int(fd), soPassRights, false) })
}

// Bind makes the node found at addr, whose port is not 0. The error is StatusAddrInUse if another process is there, or has the
// port of TCP, which belongs to who listens here.
func (n *Node) Bind(addr netip.AddrPort, to Acceptor) (*Rendezvous, error) {
	fail := func(err error) (*Rendezvous, error) {
		s := provider.StatusLink
		if errors.Is(err, unix.EADDRINUSE) {
			s = provider.StatusAddrInUse
		}
		return nil, n.failure("listen", s, err)
	}
	r := &Rendezvous{n: n, addr: addr, to: to}
	var err error
	if r.held, err = hold(addr); err != nil {
		return fail(err)
	}
	l, err := listenAt(n.name(addr))
	if err != nil {
		r.held.close()
		return fail(err)
	}
	r.ls = append(r.ls, listening{l, whereNetwork})
	if err = r.enterDir(); err != nil {
		r.closeAll()
		return fail(err)
	}
	n.mu.Lock()
	closed := n.closed.Load()
	if !closed {
		n.binds[addr] = r
	}
	n.mu.Unlock()
	if closed {
		r.closeAll()
		return nil, n.failure("listen", provider.StatusClosed, nil)
	}
	for _, l := range r.ls {
		r.over.Go(func() { r.accept(l) })
	}
	return r, nil
}

func (r *Rendezvous) closeAll() {
	for _, l := range r.ls {
		l.Close()
	}
	r.held.close()
}

// Close makes the node not be found there any more. Requests that wait are not touched.
func (r *Rendezvous) Close() error {
	r.once.Do(func() {
		r.n.mu.Lock()
		delete(r.n.binds, r.addr)
		r.n.mu.Unlock()
		r.closeAll()
	})
	r.over.Wait()
	return nil
}

// accept takes in other processes.
func (r *Rendezvous) accept(l listening) {
	nap := time.Duration(0)
	for {
		conn, err := l.AcceptUnix()
		if err == nil {
			nap = 0
			go r.greet(conn, l.where)
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		// The table of descriptors is full, for example. That may pass.
		nap = min(max(2*nap, 5*time.Millisecond), time.Second)
		t := time.NewTimer(nap)
		select {
		case <-t.C:
		case <-r.n.done:
			t.Stop()
		}
	}
}

// find returns the rendezvous that serves a, the most specific one, nil if there is none.
func (n *Node) find(a netip.AddrPort) *Rendezvous {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range candidates(a) {
		if r := n.binds[c]; r != nil {
			return r
		}
	}
	return nil
}

// candidates are the addresses of listeners that serve a.
func candidates(a netip.AddrPort) []netip.AddrPort {
	ip, port := a.Addr(), a.Port()
	c := []netip.AddrPort{a}
	if ip.Zone() != "" {
		c = append(c, netip.AddrPortFrom(ip.WithZone(""), port))
	}
	if ip.Is4() {
		c = append(c, netip.AddrPortFrom(netip.IPv4Unspecified(), port))
	}
	return append(c, netip.AddrPortFrom(netip.IPv6Unspecified(), port))
}
