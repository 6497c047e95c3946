//go:build linux

package shm

import (
	"io"
	"slices"

	"golang.org/x/sys/unix"

	"sansock/provider"
)

// incoming is the requests that are to be handed over. It is guarded by rx.
type incoming struct {
	calls   []*Request
	calling bool
}

// control receives until the socket ends, which the death of the peer brings about, too.
func (l *link) control() {
	if rc, err := l.conn.SyscallConn(); err == nil {
		rc.Read(func(uintptr) bool { return l.pump() })
	}
	l.teardown()
}

// pump takes all packets that have come, and reports whether the link is over.
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
		b, err := l.receive()
		if err == unix.EAGAIN {
			return false
		}
		if err == nil {
			err = l.handle(b)
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

// handle acts on one packet. An error ends the link. It needs rx.
func (l *link) handle(b []byte) error {
	c, err := parseControl(b)
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
	return l.finished(&c)
}

// finished acts on the end of a connection, or of a request.
func (l *link) finished(c *control) error {
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
	l.theirs.close()
	l.arena.kill()
	closeForeign(l.peerBell, l.parking.peer)
	l.node.settle(l)
	close(l.done)
}

func (l *link) sendControl(c control) { l.send(c.append(nil)) }

func (l *link) sendFin(id uint32, cause provider.Status) {
	l.sendControl(control{kind: ctlFin, conn: id, status: cause})
}
