//go:build linux

package shm

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// socket is the control connection of a link: packets, some with descriptors. Neither sending nor receiving waits.
type socket struct {
	conn *net.UnixConn
	fd   int

	tx      sync.Mutex    // innermost of all
	queue   [][]byte      // what the socket had no room for; the goroutine of flush sees to it
	short   chan struct{} // closed when the queue is short again, or the socket is; nil: nobody waits for that
	txEnded bool
	parting parting
	parted  *atomic.Uint64 // where the peer looks for it, see header

	rx      sync.Mutex // outermost: above the endpoints'
	rxEnded bool
	buf     [maxControl + 1]byte
	oob     [256]byte
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
		switch err := s.now(b, -1); err {
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

// sendFile sends a packet with a descriptor at once, or fails. Where many other packets wait it finds room that these do not get.
func (s *socket) sendFile(b []byte, fd int) error {
	s.tx.Lock()
	defer s.tx.Unlock()
	if s.txEnded {
		return io.ErrClosedPipe
	}
	err := s.now(b, fd)
	if err != unix.EAGAIN {
		return err
	}
	size, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil {
		return unix.EAGAIN
	}
	// The kernel takes the double of what is set, so this doubles the room, and puts it right again.
	unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size)
	defer unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size/2)
	return s.now(b, fd)
}

// now needs tx.
func (s *socket) now(b []byte, fd int) error {
	published()
	var oob []byte
	if fd >= 0 {
		oob = unix.UnixRights(fd)
	}
	return eintr(func() error { return unix.Sendmsg(s.fd, b, oob, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) })
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
			if err := s.now(s.queue[0], -1); err == unix.EAGAIN {
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

// close closes the socket.
func (s *socket) close() {
	s.rx.Lock()
	s.rxEnded = true
	s.rx.Unlock()
	s.tx.Lock()
	s.txEnded = true
	s.relieve()
	s.tx.Unlock()
	s.conn.Close()
}

// receive takes a packet without waiting: EAGAIN if there is none, EOF if the peer has left. What it returns is good until the next
// call. It needs rx.
func (s *socket) receive() (b []byte, files []int, err error) {
	b, files, err = s.packet()
	if err == unix.ECONNRESET { // is said once, of what the peer has not received, ahead of what it has sent
		b, files, err = s.packet()
	}
	return b, files, err
}

func (s *socket) packet() (b []byte, files []int, err error) {
	var n, oobn, flags int
	// Without room for them, looking ahead creates no descriptors.
	if err = eintr(func() (err error) {
		n, _, _, _, err = unix.Recvmsg(s.fd, s.buf[:1], nil, unix.MSG_DONTWAIT|unix.MSG_PEEK)
		return err
	}); err == nil && n == 1 && ctlKind(s.buf[0]) == ctlSegment {
		defer makeRoom()()
	}
	err = eintr(func() (err error) {
		n, oobn, flags, _, err = unix.Recvmsg(s.fd, s.buf[:], s.oob[:], unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	observed()
	files = rights(s.oob[:oobn])
	switch {
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		err = errWire
	case n == 0:
		err = io.EOF
	default:
		return s.buf[:n], files, nil
	}
	closeAll(files)
	return nil, nil, err
}

// spare is a descriptor that is given up for one that the peer sends, as a link cannot do without that, while the table of
// descriptors may be full. What comes is closed again as soon as it is mapped.
var spare struct {
	sync.Mutex
	fd int // 0: none
}

// makeRoom makes room in the table, and returns what is to be called afterwards.
func makeRoom() (done func()) {
	spare.Lock()
	if spare.fd != 0 {
		unix.Close(spare.fd)
		spare.fd = 0
	}
	return spare.Unlock
}

// keepRoom sees to it that there will be room, if there is any now.
func keepRoom() {
	spare.Lock()
	defer spare.Unlock()
	if spare.fd == 0 {
		if fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC); err == nil {
			spare.fd = fd
		}
	}
}

// rights are the descriptors that came with a packet.
func rights(oob []byte) (files []int) {
	if len(oob) == 0 {
		return nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range msgs {
		if fds, err := unix.ParseUnixRights(&msgs[i]); err == nil {
			files = append(files, fds...)
		}
	}
	return files
}

func closeAll(files []int) {
	for _, fd := range files {
		unix.Close(fd)
	}
}

// newBell returns an eventfd, and the same for the netpoller. Its counter is never zero, so that it is always readable, and
// whatever is added is a new edge.
func newBell() (*os.File, int, error) {
	fd, err := unix.Eventfd(1, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, -1, err
	}
	return os.NewFile(uintptr(fd), "doorbell"), fd, nil
}

// checkBell makes sure that fd is an eventfd, which takes no time to write to. Such a descriptor has no type of file, as
// others of its kind have none; but of these it alone takes eight bytes, and to add nothing to its counter never waits.
func checkBell(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != 0 {
		return errWire
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return err
	}
	if n, err := unix.Write(fd, make([]byte, 8)); err != nil || n != 8 {
		return errWire
	}
	return nil
}
