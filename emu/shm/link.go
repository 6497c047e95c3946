//go:build linux

package shm

import (
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"math/bits"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"sansock/internal/alarm"
	"sansock/provider"
)

func salt() uint64 {
	var b [8]byte
	crand.Read(b[:])
	return binary.LittleEndian.Uint64(b[:])
}

var errLost = errors.New("the link to the peer has ended")

// link is what two processes share. Only the process that has made it dials over it.
type link struct {
	*socket
	node  *Node
	peer  [idLen]byte
	dials bool // we have made it

	arena    arena
	hdr      header // of our arena
	bell     *os.File
	parking  parking
	peerHdr  header
	peerBell int
	peerSegs atomic.Pointer[[][]byte] // written by pump
	peerSize int64                    // bytes of them; pump's

	mu    sync.Mutex // below the endpoints'; nothing below it
	conns []*endpoint
	asked map[uint32]*Request // requests not answered
	spare []uint32            // connection numbers, of those that have been used
	used  int
	dead  bool
	idle  alarm.Alarm

	dialing pace        // of looking for an answer, of the one who spins
	ending  []*endpoint // over, but not gone, and not looked after since
	reaper  alarm.Alarm // runs while there are some

	expected int         // how many of used are over
	late     *endpoint   // the peer was rung to end it; nil: it has ended all, as far as we know
	patience alarm.Alarm // runs while late is set

	calls   []*Request // to be handed over; these two are guarded by rx
	calling bool

	batch     []*endpoint // these two are the dispatcher's
	lingering pace

	rung chan struct{} // closed when the dispatcher has ended
	done chan struct{} // closed when all is over
}

// linkFiles is how many descriptors go to the peer: memory, the doorbell and that of the parking place.
const linkFiles = 3

// open makes this side's part of a link: the first segment and the doorbells, whose descriptors go to the peer. The first of
// them is the caller's to close.
func (n *Node) open(conn *socket, dials bool) (l *link, files [linkFiles]int, err error) {
	l = &link{
		socket: conn, node: n, dials: dials, peerBell: -1, parking: parking{peer: -1}, asked: make(map[uint32]*Request),
		rung: make(chan struct{}), done: make(chan struct{}),
	}
	l.arena.l = l
	l.arena.free = make(map[int][]block)
	l.peerSegs.Store(new([][]byte))
	if !n.reserve(firstSegment) {
		return nil, files, provider.StatusLimit
	}
	fd, mem, err := newSegment(firstSegment)
	if err != nil {
		n.reserve(-firstSegment)
		return nil, files, err
	}
	l.arena.segs = [][]byte{mem}
	l.arena.next = uint32(rounded(headerBytes))
	l.hdr = viewHeader(mem)
	l.parted = l.hdr.parted
	files[0] = fd
	l.bell, files[1], err = newBell()
	if err == nil {
		files[2], err = l.parking.open()
	}
	if err != nil {
		unix.Close(fd)
		if l.bell != nil {
			l.bell.Close()
		}
		l.arena.kill()
		return nil, files, noMemory(err)
	}
	return l, files, nil
}

// drop undoes open.
func (l *link) drop() {
	l.bell.Close()
	l.parking.bell.Close()
	l.arena.kill()
	l.closePeerBells()
	l.unmapPeer()
}

func (l *link) closePeerBells() {
	for _, fd := range []int{l.peerBell, l.parking.peer} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

func (l *link) unmapPeer() {
	for _, s := range *l.peerSegs.Load() {
		unix.Munmap(s)
	}
	l.peerSegs.Store(new([][]byte))
}

// take checks and maps the peer's part. It owns the descriptors.
func (l *link) take(size int, files []int) error {
	if len(files) != linkFiles {
		closeAll(files)
		return errWire
	}
	defer unix.Close(files[0])
	l.peerBell, l.parking.peer = files[1], files[2]
	if size < firstSegment {
		return errWire
	}
	for _, fd := range files[1:] {
		if err := checkBell(fd); err != nil {
			return err
		}
	}
	mem, err := openSegment(files[0], size)
	if err != nil {
		return err
	}
	l.peerHdr = viewHeader(mem)
	l.peerSize = int64(size)
	l.peerSegs.Store(&[][]byte{mem})
	return nil
}

// start begins the work of a link that is complete.
func (l *link) start() {
	keepRoom()
	go l.control()
	go l.dispatch()
}

// control receives until the socket ends, which the death of the peer brings about, too.
func (l *link) control() {
	if rc, err := l.conn.SyscallConn(); err == nil {
		rc.Read(func(uintptr) bool { return l.pump() })
	}
	l.teardown()
}

// pump takes all packets that have come, and reports whether the link is over. It is called with no lock held.
func (l *link) pump() (over bool) {
	l.rx.Lock()
	defer l.rx.Unlock()
	over = l.receiveAll()
	l.call()
	return over
}

// receiveAll takes all packets that have come. It needs rx.
func (l *link) receiveAll() (over bool) {
	for !l.rxEnded {
		b, files, err := l.receive()
		if err == unix.EAGAIN {
			return false
		}
		if err == nil {
			err = l.handle(b, files)
		}
		if err != nil {
			l.rxEnded = true
			if err == io.EOF {
				l.hangUp()
			} else {
				l.abort()
			}
		}
	}
	return true
}

// teardown ends everything that goes over the link.
func (l *link) teardown() {
	l.mu.Lock()
	l.dead = true
	conns, asked := slices.Clone(l.conns), l.asked
	l.asked = nil
	l.idle.Stop()
	l.reaper.Stop()
	l.patience.Stop()
	l.ending = nil
	l.mu.Unlock()
	l.node.unlink(l)
	cause := provider.StatusExited
	if l.gaveUp() || l.peerHdr.parted.Load() != 0 {
		cause = provider.StatusDisconnected
	}
	for _, r := range asked {
		r.withdraw()
	}
	for _, e := range conns {
		if e != nil {
			e.replied(errLost)
			e.left(cause)
		}
	}
	l.bell.Close()
	l.parking.bell.Close()
	<-l.rung
	// Every endpoint is over, so nobody uses these any more.
	l.close()
	l.closePeerBells()
	l.unmapPeer()
	l.arena.kill()
	close(l.done)
}

// handle acts on one packet. An error ends the link. It needs rx, and owns the descriptors.
func (l *link) handle(b []byte, files []int) error {
	c, err := parseControl(b)
	if err == nil && c.kind == ctlSegment {
		return l.segment(&c, files)
	}
	if len(files) > 0 {
		closeAll(files)
		return errWire
	}
	if err != nil {
		return err
	}
	switch c.kind {
	case ctlRequest:
		return l.requested(&c)
	case ctlRefused:
		e := l.lookup(c.conn)
		if e == nil || !l.dials {
			return errWire
		}
		return e.refused(&c)
	}
	// The end of a connection, or of a request.
	l.mu.Lock()
	r := l.asked[c.conn]
	delete(l.asked, c.conn)
	l.mu.Unlock()
	if r != nil {
		if r.withdraw() {
			l.sendFin(c.conn, provider.StatusOK)
		} // else Accept or Reject is under way, and finds that it has gone
		return nil
	}
	e := l.lookup(c.conn)
	if e == nil {
		if l.dials {
			return errWire
		}
		return nil // our refusal has crossed the dialer's giving up
	}
	cause := causeOf(c.status)
	e.replied(cause)
	e.left(cause)
	return nil
}

// maxPeerMemory bounds what a peer may have us map, which costs us page tables.
const maxPeerMemory = 4 << 30

// segment maps more of the peer's memory.
func (l *link) segment(c *control, files []int) error {
	defer keepRoom()
	defer closeAll(files)
	segs := *l.peerSegs.Load()
	if len(files) != 1 || int(c.seg) != len(segs) || l.peerSize+int64(c.size) > maxPeerMemory {
		return errWire
	}
	mem, err := openSegment(files[0], int(c.size))
	if err != nil {
		return err
	}
	l.peerSize += int64(c.size)
	segs = append(slices.Clone(segs), mem)
	l.peerSegs.Store(&segs)
	return nil
}

func (l *link) sendSegment(seg, size, fd int) error {
	c := control{kind: ctlSegment, seg: uint8(seg), size: uint32(size)}
	return l.sendFile(c.append(nil), fd)
}

func (l *link) sendControl(c control) { l.send(c.append(nil)) }

func (l *link) sendFin(id uint32, cause provider.Status) {
	l.sendControl(control{kind: ctlFin, conn: id, status: cause})
}

// lookup returns a connection, nil if there is none of that number.
func (l *link) lookup(id uint32) *endpoint {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(id) < len(l.conns) {
		return l.conns[id]
	}
	return nil
}

// enter gives e a number. Only the dialing side does.
func (l *link) enter(e *endpoint) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.dead:
		return errLost
	case len(l.spare) > 0:
		e.id = l.spare[len(l.spare)-1]
		l.spare = l.spare[:len(l.spare)-1]
	case len(l.conns) < maxConns:
		e.id = uint32(len(l.conns))
		l.conns = append(l.conns, nil)
	default:
		return provider.StatusLimit
	}
	l.conns[e.id] = e
	l.used++
	return nil
}

// forget removes e, whose number may be used again.
func (l *link) forget(e *endpoint) {
	f := flow{e.remote, e.local}
	if l.dials {
		f = flow{e.local, e.remote}
	}
	l.node.leave(f, l.dials)
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(e.id) >= len(l.conns) || l.conns[e.id] != e {
		return
	}
	l.conns[e.id] = nil
	l.used--
	if e.expected {
		l.expected--
	}
	if l.dials {
		l.spare = append(l.spare, e.id)
		l.rest()
	} else if l.used == 0 && l.node.closed.Load() {
		l.abort()
	}
}

// idleTime is how long a link is kept without a connection.
const idleTime = 2 * time.Second

// rest begins to wait for the link's end if nothing uses it. Called with mu held.
func (l *link) rest() {
	if l.used > 0 || l.dead {
		return
	}
	if l.node.closed.Load() {
		l.abort()
	} else {
		l.idle.Set(idleTime, l.rested)
	}
}

func (l *link) rested() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.used == 0 && !l.dead {
		l.abort()
	}
}

// retireIdle ends the link of a closed node if no connection uses it.
func (l *link) retireIdle() (ended bool) {
	l.reap()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.used > 0 {
		return false
	}
	l.abort()
	return true
}

// post tells the peer's dispatcher that a connection wants attention. Called with the endpoint's mu held, and not after
// its end, which keeps the doorbell and the header alive.
func (l *link) post(id uint32) {
	if l.peerHdr.post(id) {
		ringBell(l.peerBell)
	}
}

// dispatch waits for the doorbell, whose counter is never read: each ring is a new event of the netpoller.
func (l *link) dispatch() {
	defer close(l.rung)
	rc, err := l.bell.SyscallConn()
	if err != nil {
		l.abort()
		return
	}
	idle := 0
	rc.Read(func(uintptr) bool {
		for {
			l.hdr.sleeps.Store(0)
			if l.scan() {
				if idle = 0; l.linger() {
					continue
				}
			} else if idle++; idle > 10*maxFalseRings {
				l.abort() // a peer that rings for nothing
				return true
			} else if idle > maxFalseRings {
				time.Sleep(time.Millisecond)
			}
			l.hdr.sleeps.Swap(1) // see words
			if !l.hdr.any() {    // looked at after sleeps is set: a later one rings
				return false
			}
		}
	})
}

// maxFalseRings is how often the doorbell may ring in a row, or connections be marked, without anything there.
const maxFalseRings = 100

// scan attends to the connections that are marked, and reports whether there was anything to do.
func (l *link) scan() (found bool) {
	for i := range l.hdr.summary {
		if l.hdr.summary[i].Load() == 0 {
			continue
		}
		for s := l.hdr.summary[i].Swap(0); s != 0; s &= s - 1 {
			word := i*64 + bits.TrailingZeros64(s)
			for _, e := range l.marked(word, l.hdr.pending[word].Swap(0)) {
				if e.attend() {
					found = true
				}
			}
		}
	}
	return found
}

// marked returns the connections whose bits are set in a word. It is the dispatcher's, and good until the next call.
func (l *link) marked(word int, bitset uint64) []*endpoint {
	l.batch = l.batch[:0]
	l.mu.Lock()
	defer l.mu.Unlock()
	for ; bitset != 0; bitset &= bitset - 1 {
		if i := word*64 + bits.TrailingZeros64(bitset); i < len(l.conns) && l.conns[i] != nil {
			l.batch = append(l.batch, l.conns[i])
		}
	}
	return l.batch
}

// flow tells a connection from others.
type flow struct{ dialer, listener netip.AddrPort }
