//go:build linux

package shm

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// handshakeTime is how long two processes may take to meet, where many do at a time.
const handshakeTime = 10 * time.Second

// greet is the listening side of a handshake, in a goroutine of its own: a peer may keep it as long as it likes.
func (r *Rendezvous) greet(conn *net.UnixConn, w where) {
	conn.SetDeadline(time.Now().Add(handshakeTime))
	n := r.n
	peer, refused := r.admit(conn)
	g := greeting{min: version, max: version, refusal: refused, id: n.id}
	if refused != refusedNot {
		conn.WriteMsgUnix(g.append(nil), signed(), nil)
		closeConn(conn)
		return
	}
	passRights(conn, true)
	l := r.exchange(conn, peer, &g)
	n.mu.Lock()
	delete(n.halves, conn)
	n.mu.Unlock()
	if l == nil {
		n.discharge(peer.key())
		closeConn(conn)
		return
	}
	passRights(conn, false)
	conn.SetDeadline(time.Time{})
	if !n.add(l) {
		l.drop()
		n.discharge(peer.key())
		closeConn(conn)
		return
	}
	l.where = w
	l.start()
}

// admit looks at who has connected, of whom nothing has been received, and counts a handshake for him.
func (r *Rendezvous) admit(conn *net.UnixConn) (peer Peer, no refusal) {
	n := r.n
	peer, err := connected(conn)
	switch {
	case err != nil || !n.accepts(peer):
		return peer, refusedUser
	case n.closed.Load():
		return peer, refusedClosed
	case !n.enlist(peer.key()):
		return peer, refusedLimit
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.halves[conn] = struct{}{}
	if n.closed.Load() { // and has looked at the halves
		conn.SetDeadline(past)
	}
	return peer, refusedNot
}

// exchange is the rest of the handshake. It returns nil if there will be no link.
func (r *Rendezvous) exchange(conn *net.UnixConn, peer Peer, g *greeting) *link {
	if _, _, err := conn.WriteMsgUnix(g.append(nil), signed(), nil); err != nil {
		return nil
	}
	b, files, err := letter(conn)
	if err != nil {
		return nil
	}
	theirs, err := parseOffer(b)
	if err != nil {
		closeForeign(files...)
		return nil
	}
	if theirs.what == wantProof {
		closeForeign(files...)
		r.held.send(conn, &offer{greeting: *g, what: wantProof}, nil)
		return nil
	}
	l, mine, err := r.n.complete(conn, peer, false, &theirs, files)
	if err != nil {
		conn.Write((&offer{greeting: greeting{min: version, max: version, refusal: refusedMemory, id: g.id}}).append(nil))
		return nil
	}
	err = r.held.send(conn, &offer{greeting: *g, allow: uint64(r.n.perPeer())}, mine[:])
	mine.sent()
	if err != nil {
		l.drop()
		return nil
	}
	return l
}

// complete makes our part of a link and takes the peer's.
func (n *Node) complete(conn *net.UnixConn, peer Peer, dials bool, theirs *offer, files []int) (l *link, mine ours, err error) {
	if l, mine, err = n.open(conn, peer, dials); err != nil {
		closeForeign(files...)
		return nil, mine, err
	}
	l.key = peer.key()
	if err := l.take(theirs, files); err != nil {
		mine.sent()
		l.drop()
		return nil, mine, err
	}
	return l, mine, nil
}

// sendOffer sends an offer with descriptors, which stay the caller's.
func sendOffer(conn *net.UnixConn, o *offer, files []int) error {
	var oob []byte
	if len(files) > 0 {
		oob = unix.UnixRights(files...)
	}
	_, _, err := conn.WriteMsgUnix(o.append(nil), oob, nil)
	return err
}
