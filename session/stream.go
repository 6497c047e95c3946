package session

import (
	"io"
	"syscall"

	pool "github.com/libp2p/go-buffer-pool"

	"sansock/internal/ring"
)

// stream is what the application sees of a session, in both directions: it outlives a hand-over.
type stream struct {
	queue      ring.Ring[item] // received, unread
	queued     int             // bytes in it
	spilled    int             // bytes of those in buffers of our own
	readBuffer int             // bound on spilled
	full       bool            // the bound keeps data in the receive buffers

	// Positions: how many bytes of the stream have arrived, without those of an offer that have not been fetched, and
	// how many the application has written, without those of an offer that has not ended.
	arrived, written uint64

	reading readState
	writing writeState
	peer    peerState
	err     error // why the connection broke; nil: it did not
	errTold bool  // it has been reported once; from then on the connection looks closed, as TCP's does
}

// readState is the state of the receiving direction.
type readState uint8

const (
	readOpen readState = iota
	readShut           // CloseRead: reading ends where the queue does, and what arrives is dropped
	readEOF            // the peer's stream has ended
)

// writeState is the state of the sending direction.
type writeState uint8

const (
	writeOpen   writeState = iota
	writeEnding            // CloseWrite, or Close: the end is to be sent after what was written
	writeEnded             // it has been sent
)

// peerState is what is known of the peer's end.
type peerState uint8

const (
	peerThere  peerState = iota
	peerClosed           // it has closed: nobody reads what we write. The first Write is taken all the same, as by TCP
	peerReset            // that one was taken, or the peer has answered with a reset after its end
)

// item is a piece of the received stream: data in a posted buffer (gen >= 0), or in a buffer of our own (gen < 0).
type item struct {
	data []byte
	own  []byte // the pooled buffer that data lies in
	gen  int32
	slot int32
}

// spillChunk is the least that a buffer of our own takes, and so bounds what many small pieces of the stream cost.
const spillChunk = 16 << 10

// keep appends data to the stream in a buffer of our own: the last one, if follows says that this is where the stream
// ends, and it has room, or a new one.
func (s *stream) keep(data []byte, follows bool) {
	s.spilled += len(data)
	if follows {
		last := s.queue.Back()
		if last.gen < 0 && cap(last.data)-len(last.data) >= len(data) {
			last.data = append(last.data, data...)
			return
		}
	}
	own := pool.Get(max(len(data), spillChunk))
	s.queue.Push(item{data: own[:copy(own, data)], own: own, gen: -1})
}

// readPosition is how much of the stream the application has read.
func (s *stream) readPosition() uint64 { return s.arrived - uint64(s.queued) }

// readEnd is the error of a read with nothing queued, nil if data may still come. ended: the line has.
func (s *stream) readEnd(ended bool) error {
	switch {
	case s.reading == readEOF:
		return io.EOF
	case s.err != nil:
		return s.tellErr(io.EOF)
	case s.reading == readShut, ended:
		return io.EOF
	}
	return nil
}

// tellErr returns the connection's error the first time, and later what remains of the connection. The call that
// reports a socket's error consumes it; a broken protocol stays what it is.
func (s *stream) tellErr(later error) error {
	if s.errTold && (s.err == syscall.ECONNRESET || s.err == syscall.ETIMEDOUT) {
		return later
	}
	s.errTold = true
	return s.err
}

// writeOver reports that nothing can be written any more.
func (s *stream) writeOver() bool {
	return s.writing != writeOpen || s.err != nil || s.peer != peerThere
}

// writeEnd is the error of a write where writeOver.
func (s *stream) writeEnd() error {
	if s.err != nil {
		return s.tellErr(syscall.EPIPE)
	}
	if s.writing == writeOpen {
		s.peer = peerReset // the Write that is cut short is the one that provokes the reset
	}
	return syscall.EPIPE
}

// writeLost takes a write of n bytes that nobody will read: as with TCP, the first one after the peer's close is taken
// and provokes a reset. It reports false where it is not the first.
func (s *stream) writeLost() bool {
	if s.peer != peerClosed || s.writing != writeOpen || s.err != nil {
		return false
	}
	s.peer = peerReset
	return true
}

// bothShut reports that the application neither reads nor writes any more, although it has not closed the connection.
func (s *stream) bothShut() bool { return s.reading == readShut && s.writing == writeEnded }

// over reports that there is nothing left to shut down: the connection broke, or both streams have ended.
func (s *stream) over(ended bool) bool {
	return s.err != nil || s.peer == peerReset ||
		s.reading == readEOF && (s.writing == writeEnded || s.writing == writeEnding && ended)
}

// broken notes why the connection broke, unless it had before.
func (s *stream) broken(err error) {
	if s.err == nil {
		s.err = err
	}
}
