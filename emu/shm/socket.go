//go:build linux

package shm

import (
	"io"
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// socket is the control connection of a link: packets. Neither sending nor receiving waits.
type socket struct {
	conn *net.UnixConn
	fd   int

	tx      sync.Mutex    // a leaf
	queue   [][]byte      // what the socket had no room for; the goroutine of flush sees to it
	short   chan struct{} // closed when the queue is short again, or the socket is; nil: nobody waits for that
	txEnded bool
	parting parting
	parted  *atomic.Uint64 // where the peer looks for it, see header

	rx      sync.Mutex // outermost: above the endpoints'
	rxEnded bool
	buf     [maxControl + 1]byte
}

func newSocket(conn *net.UnixConn) (*socket, error) {
	rc, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &socket{conn: conn}
	err = rc.Control(func(fd uintptr) { s.fd = int(fd) })
	return s, err
}

// send sends a packet, or queues it.
func (s *socket) send(b []byte) {
	s.tx.Lock()
	defer s.tx.Unlock()
	if s.txEnded {
		return
	}
	if len(s.queue) == 0 {
		switch err := s.now(b); err {
		case nil:
			return
		case unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM:
		default:
			s.failed(err)
			return
		}
		go s.flush()
	}
	if len(s.queue) == maxQueue {
		s.part()
		return
	}
	s.queue = append(s.queue, b)
}

// maxQueue is how many packets may wait for the peer at all. More than three there are not for any number of a connection, as that
// is used again only after the peer has taken some: a peer that is behind by more asks for answers and does not take them.
const maxQueue = 4 * maxConns

// maxBacklog is how many packets may wait for the peer before nothing new is begun.
const maxBacklog = 256

// backlog returns nil if few packets wait, and otherwise what is closed as soon as that is so, or the socket is closed.
func (s *socket) backlog() <-chan struct{} {
	s.tx.Lock()
	defer s.tx.Unlock()
	if len(s.queue) <= maxBacklog || s.txEnded {
		return nil
	}
	if s.short == nil {
		s.short = make(chan struct{})
	}
	return s.short
}

// relieve lets those go on that wait for the backlog to be short. It needs tx.
func (s *socket) relieve() {
	if s.short != nil {
		close(s.short)
		s.short = nil
	}
}

// now needs tx.
func (s *socket) now(b []byte) error {
	published()
	return eintr(func() error { return unix.Sendmsg(s.fd, b, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) })
}

// flush sends the queue as the peer makes room. It ends when the queue is empty, or the socket is closed.
func (s *socket) flush() {
	rc, err := s.conn.SyscallConn()
	if err != nil {
		return
	}
	rc.Write(func(uintptr) bool {
		s.tx.Lock()
		defer s.tx.Unlock()
		for len(s.queue) > 0 && !s.txEnded {
			if err := s.now(s.queue[0]); err == unix.EAGAIN {
				return false
			} else if err != nil {
				s.failed(err)
				return true
			}
			if s.queue = s.queue[1:]; len(s.queue) <= maxBacklog {
				s.relieve()
			}
		}
		s.queue = nil
		return true
	})
}

// parting is how a link ends.
type parting uint8

const (
	partingNone parting = iota // it does not, or the peer has ended it, or is dead
	partingOurs                // this side, which lives, gives it up
)

// abort gives the link up. The socket ends for both sides, and the goroutine that receives sees to the rest.
func (s *socket) abort() {
	s.tx.Lock()
	defer s.tx.Unlock()
	if !s.txEnded {
		s.part()
	}
}

// part is abort for who has tx. The peer, to which the socket looks as if this process had ended, finds the mark.
func (s *socket) part() {
	s.parting = partingOurs
	s.parted.Store(1)
	unix.Shutdown(s.fd, unix.SHUT_RDWR)
}

// hangUp ends a socket that the peer has left.
func (s *socket) hangUp() {
	s.tx.Lock()
	defer s.tx.Unlock()
	if !s.txEnded {
		unix.Shutdown(s.fd, unix.SHUT_RDWR)
	}
}

// failed ends a socket on which nothing can be sent. It needs tx.
func (s *socket) failed(err error) {
	switch err {
	case unix.EPIPE, unix.ECONNRESET: // the peer has left it
		unix.Shutdown(s.fd, unix.SHUT_RDWR)
	default:
		s.part()
	}
}

// gaveUp reports whether this side has given the link up.
func (s *socket) gaveUp() bool {
	s.tx.Lock()
	defer s.tx.Unlock()
	return s.parting == partingOurs
}

// close closes the socket. Where the kernel does not keep the peer from sending descriptors, these are closed with it, which may
// take as long as the peer likes.
func (s *socket) close() {
	s.rx.Lock()
	s.rxEnded = true
	s.rx.Unlock()
	s.tx.Lock()
	s.txEnded = true
	s.relieve()
	s.tx.Unlock()
	closeConn(s.conn)
}

// receive takes a packet without waiting: EAGAIN if there is none, EOF if the peer has left. What it returns is good until the next
// call. It needs rx, and is called by one goroutine, which nobody waits for.
func (s *socket) receive() (b []byte, err error) {
	b, err = s.packet()
	if err == unix.ECONNRESET { // is said once, of what the peer has not received, ahead of what it has sent
		b, err = s.packet()
	}
	return b, err
}

// packet has no room for descriptors, so that none is ever received.
func (s *socket) packet() (b []byte, err error) {
	var n, flags int
	err = eintr(func() (err error) {
		n, _, flags, _, err = unix.Recvmsg(s.fd, s.buf[:], nil, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		return nil, errWire
	case n == 0:
		return nil, io.EOF
	}
	observed()
	return s.buf[:n], nil
}
