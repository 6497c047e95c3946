//go:build linux

package shm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sansock/provider"
)

const (
	handshakeTime = 2 * time.Second
	maxHalves     = 64 // handshakes under way; the oldest makes room for the next
)

// Rendezvous is an address at which other processes find this one.
type Rendezvous struct {
	n    *Node
	addr netip.AddrPort
	to   Acceptor
	l    *net.UnixListener
	once sync.Once
	over chan struct{} // closed when nothing is accepted any more
}

// name is the abstract socket of an address. Abstract names belong to a network namespace, as addresses do,
// leave nothing behind, and may be taken by any user, which is why both sides look at the credentials of the other.
func (n *Node) name(a netip.AddrPort) string {
	s := "@sansock/1/" + n.Space + "/" + a.String()
	if len(s) > 100 {
		h := sha256.Sum256([]byte(s))
		s = "@sansock/1#" + hex.EncodeToString(h[:])
	}
	return s
}

// Bind makes the node found at addr, whose port is not 0. The error is StatusAddrInUse if another process is there.
func (n *Node) Bind(addr netip.AddrPort, to Acceptor) (*Rendezvous, error) {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: n.name(addr)})
	if err != nil {
		s := provider.StatusLink
		if errors.Is(err, unix.EADDRINUSE) {
			s = provider.StatusAddrInUse
		}
		return nil, n.failure("listen", s, err)
	}
	r := &Rendezvous{n: n, addr: addr, to: to, l: l, over: make(chan struct{})}
	n.mu.Lock()
	closed := n.closed.Load()
	if !closed {
		n.binds[addr] = r
	}
	n.mu.Unlock()
	if closed {
		l.Close()
		return nil, n.failure("listen", provider.StatusClosed, nil)
	}
	go r.accept()
	return r, nil
}

// Close makes the node not be found there any more. Requests that wait are not touched.
func (r *Rendezvous) Close() error {
	r.once.Do(func() {
		r.n.mu.Lock()
		delete(r.n.binds, r.addr)
		r.n.mu.Unlock()
		r.l.Close()
	})
	<-r.over
	return nil
}

// accept takes in other processes.
func (r *Rendezvous) accept() {
	defer close(r.over)
	nap := time.Duration(0)
	for {
		conn, err := r.l.AcceptUnix()
		if err == nil {
			nap = 0
			r.n.welcome(conn)
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

// half is a handshake under way.
type half struct{ conn *net.UnixConn }

// welcome begins a handshake in a goroutine of its own.
func (n *Node) welcome(conn *net.UnixConn) {
	h := &half{conn}
	n.mu.Lock()
	if n.closed.Load() {
		n.mu.Unlock()
		conn.Close()
		return
	}
	if len(n.halves) >= maxHalves {
		n.halves[0].conn.Close()
		n.halves = slices.Delete(n.halves, 0, 1)
	}
	n.halves = append(n.halves, h)
	n.mu.Unlock()
	go func() {
		l := n.greet(conn)
		n.mu.Lock()
		if i := slices.Index(n.halves, h); i >= 0 {
			n.halves = slices.Delete(n.halves, i, i+1)
		} else if l != nil {
			// Pushed out, or the node has closed.
			n.mu.Unlock()
			l.drop()
			conn.Close()
			return
		}
		n.mu.Unlock()
		if l == nil {
			conn.Close()
			return
		}
		if !n.add(l) {
			l.drop()
			conn.Close()
			return
		}
		l.start()
	}()
}

// greet is the listening side of a handshake. It returns nil if there will be no link.
func (n *Node) greet(conn *net.UnixConn) *link {
	conn.SetDeadline(time.Now().Add(handshakeTime))
	g := greeting{min: version, max: version, id: n.id}
	if ok, err := n.trusted(conn); err != nil || !ok {
		g.refusal = refusedUser
	} else if n.closed.Load() {
		g.refusal = refusedClosed
	}
	if _, err := conn.Write(g.append(nil, false)); err != nil || g.refusal != refusedNot {
		return nil
	}
	b, files, err := readPacket(conn)
	if err != nil {
		return nil // it has a link with us already
	}
	opening, err := parseGreeting(b, true)
	if err != nil {
		closeAll(files)
		return nil
	}
	l, mine, err := n.complete(conn, false, opening, files)
	if err != nil {
		g.refusal = refusedMemory
		conn.Write(g.append(nil, true))
		return nil
	}
	defer unix.Close(mine[0])
	g.size = firstSegment
	if _, _, err := conn.WriteMsgUnix(g.append(nil, true), unix.UnixRights(mine[:]...), nil); err != nil {
		l.drop()
		return nil
	}
	conn.SetDeadline(time.Time{})
	return l
}

// complete makes our part of a link and takes the peer's.
func (n *Node) complete(conn *net.UnixConn, dials bool, g greeting, files []int) (l *link, mine [linkFiles]int, err error) {
	s, err := newSocket(conn)
	if err != nil {
		closeAll(files)
		return nil, mine, err
	}
	if l, mine, err = n.open(s, dials); err != nil {
		closeAll(files)
		return nil, mine, err
	}
	l.peer = g.id
	if err := l.take(int(g.size), files); err != nil {
		l.drop()
		unix.Close(mine[0])
		return nil, mine, err
	}
	return l, mine, nil
}

// trusted reports whether the process at the other end may be one of ours.
func (n *Node) trusted(conn *net.UnixConn) (ok bool, err error) {
	rc, err := conn.SyscallConn()
	if err != nil {
		return false, err
	}
	var cred *unix.Ucred
	if cerr := rc.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); cerr != nil || err != nil {
		return false, errors.Join(cerr, err)
	}
	return n.Trust(cred.Uid), nil
}

// readPacket reads a packet of a handshake.
func readPacket(conn *net.UnixConn) ([]byte, []int, error) {
	b, oob := make([]byte, maxControl), make([]byte, 256)
	k, oobn, flags, _, err := conn.ReadMsgUnix(b, oob)
	if err != nil {
		return nil, nil, err
	}
	files := rights(oob[:oobn])
	if k == 0 || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		closeAll(files)
		return nil, nil, errWire
	}
	return b[:k], files, nil
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

// linkTo returns the link to the process that listens at a, and makes it if there is none. One asks there for all who want to
// know at a time: many would push each other out of the handshakes that the other side has under way.
func (n *Node) linkTo(ctx context.Context, a netip.AddrPort) (*link, error) {
	for {
		n.mu.Lock()
		o := n.asking[a]
		if o == nil {
			break
		}
		n.mu.Unlock()
		select {
		case <-o.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-n.done:
			return nil, provider.StatusClosed
		}
		if o.err != nil || o.l != nil && n.has(o.l) {
			return o.l, o.err
		}
	}
	o := &outgoing{ready: make(chan struct{})}
	n.asking[a] = o
	n.mu.Unlock()
	l, err := n.ask(ctx, a)
	if ctx.Err() == nil { // else it was given up, and another one asks
		o.l, o.err = l, err
	}
	n.mu.Lock()
	delete(n.asking, a)
	n.mu.Unlock()
	close(o.ready)
	return l, err
}

// ask is linkTo without regard for others that ask.
func (n *Node) ask(ctx context.Context, a netip.AddrPort) (*link, error) {
	if n.closed.Load() {
		return nil, provider.StatusClosed
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	for _, c := range candidates(a) {
		conn, err := n.connect(ctx, n.name(c))
		if err == nil {
			l, err := n.meet(ctx, conn)
			if err == nil {
				n.remember(a, l)
			}
			return l, err
		}
		if !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENOENT) {
			return nil, &provider.Error{Status: provider.StatusLink, Err: errors.New(err.Error())}
		}
	}
	return nil, provider.StatusNoListener
}

// connect connects to a rendezvous, and waits for a moment where too many do.
func (n *Node) connect(ctx context.Context, name string) (*net.UnixConn, error) {
	for {
		var d net.Dialer
		c, err := d.DialContext(ctx, "unixpacket", name)
		if err == nil {
			return c.(*net.UnixConn), nil
		}
		if !errors.Is(err, unix.EAGAIN) {
			return nil, err
		}
		t := time.NewTimer(time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, err
		case <-n.done:
			t.Stop()
			return nil, err
		}
	}
}

// meet is the dialing side of a handshake.
func (n *Node) meet(ctx context.Context, conn *net.UnixConn) (*link, error) {
	used := false
	defer func() {
		if !used {
			conn.Close()
		}
	}()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	fail := func(err error) (*link, error) {
		s := provider.StatusLink
		why := errors.New(err.Error()) // not the same error, as a reset would keep the switch from trying TCP
		switch err {
		case refusedUser:
			s, why = provider.StatusNoListener, err // nobody whom we could reach
		case refusedClosed:
			s = provider.StatusNoListener
		case refusedMemory:
			s = provider.StatusNoMemory
		default:
			if p := provider.StatusOf(err); p == provider.StatusNoMemory || p == provider.StatusLimit {
				s = p
			}
		}
		return nil, &provider.Error{Status: s, Err: why}
	}
	if ok, err := n.trusted(conn); err != nil {
		return fail(err)
	} else if !ok {
		return fail(refusedUser)
	}
	b, files, err := readPacket(conn)
	if err != nil {
		return fail(err)
	}
	closeAll(files)
	g, err := parseGreeting(b, false)
	if err == nil && g.refusal != refusedNot {
		err = g.refusal
	}
	if err != nil {
		return fail(err)
	}
	n.mu.Lock()
	o := n.out[g.id]
	first := o == nil
	if first {
		o = &outgoing{ready: make(chan struct{})}
		n.out[g.id] = o
	}
	n.mu.Unlock()
	if !first {
		select {
		case <-o.ready:
			return o.l, o.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	l, err := n.openTo(conn, g)
	if err == nil && (!stop() || !n.add(l)) {
		l.drop()
		err = errors.New("given up")
	}
	if err != nil {
		n.mu.Lock()
		delete(n.out, g.id)
		n.mu.Unlock()
		_, o.err = fail(err)
		close(o.ready)
		return nil, o.err
	}
	used = true
	n.mu.Lock()
	o.l = l
	n.mu.Unlock()
	conn.SetDeadline(time.Time{})
	l.start()
	close(o.ready)
	return l, nil
}

// openTo exchanges the parts of a link.
func (n *Node) openTo(conn *net.UnixConn, g greeting) (*link, error) {
	s, err := newSocket(conn)
	if err != nil {
		return nil, err
	}
	l, ours, err := n.open(s, true)
	if err != nil {
		return nil, err
	}
	defer unix.Close(ours[0])
	l.peer = g.id
	mine := greeting{min: version, max: version, id: n.id, size: firstSegment}
	_, _, err = conn.WriteMsgUnix(mine.append(nil, true), unix.UnixRights(ours[:]...), nil)
	var b []byte
	var files []int
	if err == nil {
		b, files, err = readPacket(conn)
	}
	var theirs greeting
	if err == nil {
		theirs, err = parseGreeting(b, true)
		if err == nil && theirs.refusal != refusedNot {
			err = theirs.refusal
		}
		if err == nil && theirs.id != g.id {
			err = errWire
		}
		if err != nil {
			closeAll(files)
		}
	}
	if err == nil {
		err = l.take(int(theirs.size), files)
	}
	if err != nil {
		l.drop()
		return nil, err
	}
	return l, nil
}
