//go:build ofi && cgo && linux

package ofi

import (
	"sansock/internal/ring"
	"sansock/provider"
)

// The first message of a connection has to be held for a peer that has posted no receive yet, which no fabric does: it lets
// the sender try again and again, or ends the connection. So each side has one receive of its own posted from the
// beginning, and the first message on the wire is for that: one byte that says what it is, and the
// application's first message if that is no longer than MaxFirstMessage. Receives that the application posts wait until
// it has come, so that the order is kept.
const (
	firstNone    = 0 // the application's first message is longer, and follows
	firstMessage = 1 // it is here
	firstSize    = 1 + provider.MaxFirstMessage
)

// first is the state of both directions, under endpoint.mu.
type first struct {
	sent    bool             // ours has been sent
	done    bool             // the peer's has come, and has been delivered
	message []byte           // it has come, and has not been delivered; not nil
	waiting ring.Ring[int32] // receives that wait for it
}

// firstArrived takes the peer's first message of n bytes. Called with mu held, by run.
func (e *endpoint) firstArrived(n int) {
	if n < 1 || n > firstSize {
		e.loses(provider.StatusLink)
		return
	}
	switch b := e.c.ownBytes(pageFirstRecv, n); b[0] {
	case firstMessage:
		e.first.message = append(make([]byte, 0, n), b[1:]...)
		e.firstDelivered()
	case firstNone:
		e.firstOver()
	default:
		e.loses(provider.StatusLink)
	}
}

// firstDelivered moves the first message into a receive, if there are both. Called with mu held.
func (e *endpoint) firstDelivered() {
	if e.first.message == nil || e.first.waiting.Len() == 0 {
		return
	}
	m := e.first.message
	e.first.message = nil
	i := e.first.waiting.Pop()
	if n := copy(e.slots[i].buf, m); n < len(m) {
		e.complete(i, provider.StatusTooLong, 0)
		e.loses(provider.StatusTooLong)
	} else {
		e.complete(i, provider.StatusOK, n)
	}
	e.firstOver()
}

// firstOver posts the receives that have waited. Called with mu held.
func (e *endpoint) firstOver() {
	e.first.done = true
	for e.first.waiting.Len() > 0 {
		i := e.first.waiting.Pop()
		if e.over || e.postReceive(i) != 0 {
			e.complete(i, provider.StatusAborted, 0)
			e.loses(provider.StatusLink)
		}
	}
}

// sendFirst sends the first message, or says that it follows. It reports whether that was all. Called with mu held.
func (e *endpoint) sendFirst(i int32, n int, a, b []byte) (all bool, result int) {
	page := e.c.ownBytes(pageFirstSend, firstSize)
	if n > provider.MaxFirstMessage {
		page[0] = firstNone
		result = e.c.send(e.c.own(pageFirstSend, 1), contextFirstSend)
	} else {
		all = true
		page[0] = firstMessage
		copy(page[1+copy(page[1:], a):], b)
		result = e.c.send(e.c.own(pageFirstSend, 1+n), uint64(i)+1)
	}
	if result == 0 {
		e.first.sent = true
		e.sending++
	}
	return all, result
}
