//go:build linux

package shm

import (
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

func salt() uint64 {
	var b [8]byte
	crand.Read(b[:])
	return binary.LittleEndian.Uint64(b[:])
}

var errLost = errors.New("the link to the peer has ended")

// link is what two processes share: a socket for what is rare, memory of each side, and doorbells. Only the process that has made it
// dials over it.
type link struct {
	*socket
	roster
	settling
	incoming
	dispatching

	// Never changed when the link has started.
	node  *Node
	peer  Peer
	key   processKey // of the peer
	dials bool       // we have made it
	where where

	arena    arena // ours
	hdr      header
	bell     *os.File
	parking  parking
	theirs   theirs
	peerHdr  header
	peerBell int

	dialing pace          // of looking for an answer, of the one who spins
	done    chan struct{} // closed when all is over
}

// ours is what goes to the peer when two processes meet: descriptors of our memory, and of the two doorbells that it rings.
type ours [linkFiles]int

const (
	linkFiles = 3
	maxFiles  = linkFiles + 1 // with what proves that we listen
)

// open makes this side's part of a link. The descriptors go to the peer, and are then the caller's to give up, see sent.
func (n *Node) open(conn *net.UnixConn, peer Peer, dials bool) (l *link, files ours, err error) {
	s, err := newSocket(conn)
	if err != nil {
		return nil, files, err
	}
	l = &link{
		socket: s, node: n, peer: peer, dials: dials, peerBell: -1, parking: parking{peer: -1}, done: make(chan struct{}),
	}
	l.asked = make(map[uint32]*Request)
	l.rung = make(chan struct{})
	l.theirs.fd = -1
	if err = l.arena.open(n); err != nil {
		return nil, files, err
	}
	l.hdr = l.arena.hdr
	l.parted = l.hdr.parted
	files = ours{l.arena.fd, -1, -1}
	l.bell, files[1], err = newBell()
	if err == nil {
		files[2], err = l.parking.open()
	}
	if err != nil {
		files.sent()
		if l.bell != nil {
			l.bell.Close()
		}
		l.arena.kill()
		return nil, files, noMemory(err)
	}
	return l, files, nil
}

// sent gives up what the peer has by now, if it gets it at all. The memory stays the arena's.
func (o *ours) sent() {
	for _, fd := range o[1:] {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// drop undoes open.
func (l *link) drop() {
	l.bell.Close()
	l.parking.bell.Close()
	l.arena.kill()
	l.theirs.close()
	closeForeign(l.peerBell, l.parking.peer)
}

// take checks and maps the peer's part. It owns the descriptors.
func (l *link) take(o *offer, files []int) error {
	if len(files) != linkFiles {
		closeForeign(files...)
		return errWire
	}
	l.peerBell, l.parking.peer = files[1], files[2]
	if err := l.theirs.open(files[0], firstSegment, int(l.node.perPeer())); err != nil {
		return err
	}
	for _, fd := range files[1:] {
		if err := checkBell(fd); err != nil {
			return err
		}
	}
	l.peerHdr = viewHeader(l.theirs.mem)
	l.arena.allowed(int(o.allow))
	return nil
}

// start begins the work of a link that is complete.
func (l *link) start() {
	go l.control()
	go l.dispatch()
	l.mu.Lock()
	l.rest()
	l.mu.Unlock()
}
