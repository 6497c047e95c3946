//go:build linux

package shm

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"sansock/provider"
)

// stranger is the error of a rendezvous where nobody answers whom we want to reach. The search goes on.
type stranger struct{ error }

func (s stranger) Unwrap() error { return s.error }

// linkTo returns the link to the process that listens at a, and makes it if there is none. It is asked for once for all who want
// to know at a time, in a goroutine that ends when nobody does any more: a peer may keep it as long as it likes.
func (n *Node) linkTo(ctx context.Context, a netip.AddrPort) (*link, error) {
	for {
		n.mu.Lock()
		o := n.asking[a]
		if o == nil {
			o = &outgoing{ready: make(chan struct{})}
			asking, cancel := context.WithTimeout(context.Background(), handshakeTime)
			o.cancel = cancel
			n.asking[a] = o
			go n.find1(asking, a, o)
		}
		o.wanted++
		n.mu.Unlock()
		var err error
		select {
		case <-o.ready:
		case <-ctx.Done():
			err = ctx.Err()
		case <-n.done:
			err = provider.StatusClosed
		}
		n.mu.Lock()
		if o.wanted--; o.wanted == 0 && err != nil {
			o.cancel()
			if n.asking[a] == o {
				delete(n.asking, a) // whoever comes asks anew
			}
		}
		n.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if o.err != nil || n.has(o.l) {
			return o.l, o.err
		}
	}
}

// find1 asks for the process that listens at a, for o.
func (n *Node) find1(ctx context.Context, a netip.AddrPort, o *outgoing) {
	o.l, o.err = n.ask(ctx, a)
	o.cancel()
	n.mu.Lock()
	if n.asking[a] == o {
		delete(n.asking, a)
	}
	n.mu.Unlock()
	close(o.ready)
}

// ask goes from one rendezvous to the next at which a may be served.
func (n *Node) ask(ctx context.Context, a netip.AddrPort) (*link, error) {
	var met error = provider.StatusNoListener
	for _, p := range n.places(a) {
		if n.closed.Load() {
			return nil, provider.StatusClosed
		}
		conn, err := n.connect(ctx, p.name)
		switch {
		case err == nil:
		case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
			continue
		case errors.Is(err, unix.EACCES):
			met = &provider.Error{Status: provider.StatusNoListener, Err: refusedUser}
			continue
		default:
			return nil, &provider.Error{Status: provider.StatusLink, Err: errors.New(err.Error())}
		}
		l, err := n.meet(ctx, conn, spot{a, p.where})
		if err == nil {
			n.remember(a, l)
			return l, nil
		}
		met = asError(err)
		if s := (stranger{}); !errors.As(err, &s) {
			break
		}
	}
	return nil, met
}

// asError is the error of a handshake in the form of the interface. It is not the same error, as a reset would keep the switch
// from trying TCP.
func asError(err error) error {
	s, why := provider.StatusLink, errors.New(err.Error())
	if errors.Is(err, errNoProof) {
		s = provider.StatusNoListener // none that is one
	}
	var no refusal
	if errors.As(err, &no) {
		switch no {
		case refusedUser:
			s, why = provider.StatusNoListener, no // nobody whom we could reach
		case refusedClosed:
			s = provider.StatusNoListener
		case refusedMemory:
			s = provider.StatusNoMemory
		case refusedLimit:
			s = provider.StatusLimit
		}
	} else if p := provider.StatusOf(err); p == provider.StatusNoMemory || p == provider.StatusLimit {
		s = p
	}
	return &provider.Error{Status: s, Err: why}
}

// connect connects to a rendezvous, and waits for a moment where too many do.
func (n *Node) connect(ctx context.Context, name string) (*net.UnixConn, error) {
	for {
		d := net.Dialer{Control: noRights}
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

// meet is the dialing side of a handshake. It owns conn.
func (n *Node) meet(ctx context.Context, conn *net.UnixConn, at spot) (*link, error) {
	kept := false
	defer func() {
		if !kept {
			closeConn(conn)
		}
	}()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(past) })
	defer stop()
	g, peer, err := n.hear(conn)
	if err != nil {
		return nil, err
	}
	passRights(conn, true)
	key := outKey{process: peer.key(), id: g.id}
	if peer.PID == 0 {
		key.at = at.addr
	}
	n.mu.Lock()
	o := n.out[key]
	first := o == nil
	if first {
		o = &outgoing{ready: make(chan struct{})}
		n.out[key] = o
	}
	n.mu.Unlock()
	if !first {
		return n.meetAgain(ctx, conn, o, peer, at)
	}
	l, err := n.openTo(conn, peer, g, at)
	if err == nil && !stop() {
		l.drop()
		n.discharge(l.key)
		err = ctx.Err()
	}
	if err == nil {
		passRights(conn, false)
		conn.SetDeadline(time.Time{})
		if kept = n.add(l); !kept {
			l.drop()
			n.discharge(l.key)
			err = provider.StatusClosed
		}
	}
	n.mu.Lock()
	if o.l, o.err = l, err; err != nil {
		o.l = nil
		delete(n.out, key)
	}
	n.mu.Unlock()
	if err == nil {
		l.start()
	}
	close(o.ready)
	return o.l, o.err
}

// hear reads the greeting, and finds out who sends it: not who listened there once, which the socket itself would tell. Of anybody
// else nothing is read. Only root may have become the user that we want to reach, so that others are not listened to.
func (n *Node) hear(conn *net.UnixConn) (g greeting, p Peer, err error) {
	if p, err = connected(conn); err != nil {
		return g, p, stranger{err}
	}
	if !n.reaches(p) && p.UID != 0 {
		return g, p, stranger{refusedUser}
	}
	passCreds(conn, true)
	var b [greetLen]byte
	k, p, err := signature(conn, b[:])
	passCreds(conn, false)
	if err != nil {
		return g, p, stranger{err}
	}
	if !n.reaches(p) {
		return g, p, stranger{refusedUser}
	}
	if g, err = parseGreeting(b[:k]); err != nil {
		return g, p, stranger{err}
	}
	switch g.refusal {
	case refusedNot:
		return g, p, nil
	case refusedUser:
		return g, p, stranger{g.refusal}
	}
	return g, p, g.refusal
}

// meetAgain is meet where there is a link to the process already, or somebody makes it. It shows that it listens here, too.
func (n *Node) meetAgain(ctx context.Context, conn *net.UnixConn, o *outgoing, peer Peer, at spot) (*link, error) {
	select {
	case <-o.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if o.err != nil {
		return nil, o.err
	}
	mine := offer{greeting: greeting{min: version, max: version, id: n.id}, what: wantProof}
	if err := sendOffer(conn, &mine, nil); err != nil {
		return nil, err
	}
	b, files, err := letter(conn)
	if err != nil {
		return nil, err
	}
	theirs, err := parseOffer(b)
	rest, perr := n.proven(&theirs, files, peer, at)
	closeForeign(rest...)
	if err = errors.Join(err, perr); err != nil {
		return nil, err
	}
	return o.l, nil
}

// openTo exchanges the parts of a link.
func (n *Node) openTo(conn *net.UnixConn, peer Peer, g greeting, at spot) (*link, error) {
	if !n.enlist(peer.key()) {
		return nil, refusedLimit
	}
	l, err := n.offerTo(conn, peer, g, at)
	if err != nil {
		n.discharge(peer.key())
	}
	return l, err
}

func (n *Node) offerTo(conn *net.UnixConn, peer Peer, g greeting, at spot) (*link, error) {
	l, files, err := n.open(conn, peer, true)
	if err != nil {
		return nil, err
	}
	l.key = peer.key()
	mine := offer{greeting: greeting{min: version, max: version, id: n.id}, allow: uint64(n.perPeer())}
	err = sendOffer(conn, &mine, files[:])
	files.sent()
	if err == nil {
		err = n.answerOf(conn, l, g, at)
	}
	if err != nil {
		l.drop()
		return nil, err
	}
	return l, nil
}

// answerOf takes the listening side's offer.
func (n *Node) answerOf(conn *net.UnixConn, l *link, g greeting, at spot) error {
	b, files, err := letter(conn)
	if err != nil {
		return err
	}
	theirs, err := parseOffer(b)
	switch {
	case err != nil:
	case theirs.refusal != refusedNot:
		err = theirs.refusal
	case theirs.id != g.id:
		err = errWire
	}
	if err != nil {
		closeForeign(files...)
		return err
	}
	if files, err = n.proven(&theirs, files, l.peer, at); err != nil {
		closeForeign(files...)
		return err
	}
	return l.take(&theirs, files)
}
