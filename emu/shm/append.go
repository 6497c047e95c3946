//go:build linux

package shm

import "sync/atomic"

// An open message is an event that may change: its sender puts more bytes behind it, into the
// receive, and then a greater length into the word, by compare-and-swap. The receiver takes it by a
// swap. What it gets is final, and what it leaves is no open event, so that the sender's next
// compare-and-swap fails. The round stays, so that the slot does not look new.
//
// Append rings no bell. The message was stored before its sender looked whether the peer is armed,
// and the peer arms before it looks for messages. So either the peer was armed, and has been rung,
// and will look; or it arms later, and finds the message then, if not before. Whenever it looks, it
// gets all that was appended by then. What comes later is not appended: it is a message, with a
// bell. A peer that is armed for solicited messages does not wait for one that is not, however long
// that grows.
//
// A sender that has been overtaken may still be writing behind the message when the receiver has
// it. It writes nowhere else, and has done so before its next event. Until that comes, the memory
// is not given to another use.

// tail is a message that may grow, the last one that was sent.
type tail struct {
	at   *atomic.Uint64 // its event
	word uint64         // which is in it; 0: there is no such message
	room []byte         // the receive; the peer cannot make it longer
}

// taker is who takes events out of the inbox.
type taker uint8

const (
	device taker = iota // ahead of who polls
	poller
)

// unread is what the owner of an inbox has yet to read of what has left its ring.
type unread uint8

const (
	unreadApp  unread = 1 << iota // says Unread
	unreadComp                    // a completion of an open message that was not polled
)

// Append implements provider.Appender.
func (e *endpoint) Append(b []byte) bool {
	e.mu.Lock()
	t := &e.out.tail
	n := int(uint32(t.word))
	if t.word == 0 || e.over() || len(b) > len(t.room)-n {
		e.mu.Unlock()
		return false
	}
	if t.at.Load() != t.word {
		t.word = 0
		e.mu.Unlock()
		return false
	}
	copy(t.room[n:], b)
	published()
	longer := t.word + uint64(len(b))
	done := t.at.CompareAndSwap(t.word, longer)
	if !done {
		longer = 0
	}
	t.word = longer
	e.mu.Unlock()
	return done
}

// shut takes an open message out of its slot. Whatever the peer has made of the word since it was
// seen, it is what counts. A message that is taken ahead of who polls is unread from before on, so
// that it is never neither open nor unread. Called with mu held.
func (e *endpoint) shut(slot *atomic.Uint64, t taker) (w uint64) {
	if t == device {
		e.note(e.in.noted | unreadComp)
	}
	return slot.Swap(lap(e.in.taken))
}

// note says to the peer what is unread. Called with mu held, and not after the end.
func (e *endpoint) note(u unread) {
	if e.in.noted != u {
		e.in.noted = u
		e.in.unread.Store(uint64(u))
	}
}

// Unread implements provider.Appender.
func (e *endpoint) Unread(is bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.over():
	case is:
		e.note(e.in.noted | unreadApp)
	default:
		e.note(e.in.noted &^ unreadApp)
	}
}
