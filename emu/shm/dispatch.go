//go:build linux

package shm

import (
	"math/bits"
	"time"
)

// dispatching is what the dispatcher of a link needs.
type dispatching struct {
	batch     []*endpoint
	lingering pace
	rung      chan struct{} // closed when it has ended
}

// post tells the peer's dispatcher that a connection wants attention. Called with the endpoint's mu held, and not after
// its end, which keeps the doorbell and the header alive.
func (l *link) post(id uint32) {
	if l.peerHdr.post(id) {
		ringBell(l.peerBell)
	}
}

// dispatch waits for the doorbell.
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
