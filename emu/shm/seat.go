//go:build linux

package shm

import (
	"os"
	"sync/atomic"
	"syscall"
)

// seat lets one waiter of a link sleep with a doorbell of its own, so that it is woken without the dispatcher, whose hop
// costs as much as all the rest. Only a waiter that is alone gets it: where there are many, the dispatcher
// wakes them in one go.
type seat struct {
	taken  atomic.Bool
	abused atomic.Bool // the peer rings for nothing
	idle   int         // false rings in a row; of who has taken it
	bell   *os.File
	conn   syscall.RawConn
	peer   int // the peer's
}

// open makes the doorbell and returns its descriptor.
func (s *seat) open() (fd int, err error) {
	if s.bell, fd, err = newBell(); err != nil {
		return -1, err
	}
	s.conn, err = s.bell.SyscallConn()
	return fd, err
}

// Seat implements provider.Sleeper.
func (e *endpoint) Seat() bool {
	s := &e.l.seat
	if !e.alone() || s.abused.Load() || !s.taken.CompareAndSwap(false, true) {
		return false
	}
	e.mu.Lock()
	e.sits = true
	e.mu.Unlock()
	return true
}

// Sleep implements provider.Sleeper.
func (e *endpoint) Sleep(ready bool) {
	s := &e.l.seat
	if !ready {
		s.conn.Read(func(uintptr) bool { return e.risen(s) }) // fails when the link has ended
	}
	e.mu.Lock()
	e.sits = false
	if !e.over && e.in.arm.Load() == 0 {
		e.armed = 0 // used up
	}
	e.mu.Unlock()
	s.taken.Store(false)
}

// risen reports whether Sleep is over. The peer rings after it has taken the arming.
func (e *endpoint) risen(s *seat) bool {
	if e.roused.Swap(false) {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		return true
	}
	rung := e.in.arm.Load() == 0
	if rung && e.arrived() {
		s.idle = 0
	} else if s.idle++; s.idle > maxFalseRings {
		s.abused.Store(true)
		return true
	}
	return rung
}

// Interrupt implements provider.Sleeper.
func (e *endpoint) Interrupt() {
	e.roused.Store(true)
	e.l.seat.conn.Control(ringSelf)
}

func ringSelf(fd uintptr) { ring(int(fd)) }
