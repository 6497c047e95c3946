//go:build linux

package shm

import (
	"net/netip"
	"sync"
	"time"

	"sansock/internal/alarm"
	"sansock/provider"
)

// flow tells a connection from others.
type flow struct{ dialer, listener netip.AddrPort }

// roster is the connections of a link. Only the dialing side gives them numbers.
type roster struct {
	mu    sync.Mutex // below the endpoints'; the socket's tx is below it
	conns []*endpoint
	asked map[uint32]*Request // requests not answered
	spare []uint32            // connection numbers, of those that have been used
	used  int
	dead  bool
	idle  alarm.Alarm
}

// settling is what is over here, and what the peer has yet to end, see fin.go. The roster's mu guards it.
type settling struct {
	ending   []*endpoint // over, but not gone, and not looked after since
	reaper   alarm.Alarm // runs while there are some
	expected int         // how many of used are over
	late     *endpoint   // the peer was rung to end it; nil: it has ended all, as far as we know
	lateFor  time.Duration
	patience alarm.Alarm // runs while late is set
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
	case l.overdue():
		return provider.StatusLimit
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

// admit enters e under the number of the request that it answers, if the dialer still waits.
func (l *link) admit(r *Request, e *endpoint) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked[r.id] != r || l.dead {
		return false
	}
	delete(l.asked, r.id)
	for int(r.id) >= len(l.conns) {
		l.conns = append(l.conns, nil)
	}
	l.conns[r.id] = e
	l.used++
	return true
}

// maxOverdue is how many connections that have ended here a peer may hold without an answer before it gets no new one.
const maxOverdue = 64

// overdue reports whether the peer keeps connections that have ended, though it was rung for them, and was waited for.
// Called with mu held.
func (l *link) overdue() bool { return l.waits() && l.lateFor >= patience && l.expected > maxOverdue }

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
	}
	l.rest()
}

// idleTime is how long a link is kept without a connection, idleLonger how long the side that does not dial keeps it.
const (
	idleTime   = 2 * time.Second
	idleLonger = 10 * time.Second
)

// rest begins to wait for the link's end if nothing uses it. Called with mu held.
func (l *link) rest() {
	switch {
	case l.used > 0 || l.dead:
	case l.node.closed.Load():
		l.abort()
	case l.dials:
		l.idle.Set(idleTime, l.rested)
	default:
		l.idle.Set(idleLonger, l.rested)
	}
}

func (l *link) rested() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.used > 0 || l.dead:
	case len(l.asked) > 0:
		l.idle.Set(idleLonger, l.rested)
	default:
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
