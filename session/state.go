package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// State is an end of a session that was handed over, as Handover has left it.
type State struct {
	ticket        ticket
	local, remote netip.AddrPort // of the connection, as the application sees them
	flags         uint8
	reading       readState
	writing       writeState
	linger        int32
	readBuffer    uint32
	suspends      uint64
	in, out       uint64 // bytes of the stream received, and sent
	urgent        urgentState
	unread        []byte // received, not read
}

// urgentState is what there is of urgent messages.
type urgentState struct {
	arrived, taken, mark, sent, acked uint64
	queue                             []urgentItem
}

// stateDialer is the one flag: the end had dialed.
const stateDialer = 1

// The encoding of a State: magic, version, then the fields in order, little-endian, byte strings with their
// length before them. It is for programs of one version: unlike a hello it grows by a new version.
const (
	stateMagic   = "SOCKhand"
	stateVersion = 2
)

// Addr is where the peer waits: the address that the new end connects to, by the provider of the old one.
func (s *State) Addr() netip.AddrPort { return s.ticket.addr }

// LocalAddr and RemoteAddr are the addresses of the connection, which stay as they were.
func (s *State) LocalAddr() netip.AddrPort  { return s.local }
func (s *State) RemoteAddr() netip.AddrPort { return s.remote }

func appendBytes(b, p []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(p))), p...)
}

func appendAddr(b []byte, a netip.AddrPort) []byte {
	p, _ := a.MarshalBinary() // does not fail
	return appendBytes(b, p)
}

// Append appends the encoded State to b.
func (s *State) Append(b []byte) []byte {
	le := binary.LittleEndian
	b = append(append(b, stateMagic...), stateVersion)
	b = append(b, s.ticket.token[:]...)
	for _, a := range []netip.AddrPort{s.ticket.addr, s.local, s.remote} {
		b = appendAddr(b, a)
	}
	b = append(b, s.flags, byte(s.reading), byte(s.writing))
	b = le.AppendUint32(b, uint32(s.linger))
	b = le.AppendUint32(b, s.readBuffer)
	u := &s.urgent
	for _, n := range []uint64{s.suspends, s.in, s.out, u.arrived, u.taken, u.mark, u.sent, u.acked} {
		b = le.AppendUint64(b, n)
	}
	b = append(b, uint8(len(u.queue)))
	for _, it := range u.queue {
		b = appendBytes(le.AppendUint64(b, it.mark), it.data)
	}
	return appendBytes(b, s.unread)
}

// ErrState is the error of ParseState.
var ErrState = errors.New("session: malformed state of a handed over connection")

// stateReader takes fields off the front of an encoded State. After too few bytes it returns zeroes, and bad is set.
type stateReader struct {
	b   []byte
	bad bool
}

func (r *stateReader) take(n int) []byte {
	if r.bad || n < 0 || len(r.b) < n {
		r.bad = true
		return make([]byte, min(max(n, 0), 64))
	}
	p := r.b[:n:n]
	r.b = r.b[n:]
	return p
}

func (r *stateReader) byte() uint8   { return r.take(1)[0] }
func (r *stateReader) word() uint32  { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *stateReader) long() uint64  { return binary.LittleEndian.Uint64(r.take(8)) }
func (r *stateReader) bytes() []byte { return r.take(int(r.word())) }

func (r *stateReader) addr() (a netip.AddrPort) {
	if p := r.bytes(); !r.bad && a.UnmarshalBinary(p) != nil {
		r.bad = true
	}
	return a
}

// ParseState decodes a State. The State refers to b.
func ParseState(b []byte) (*State, error) {
	r := stateReader{b: b}
	if string(r.take(len(stateMagic))) != stateMagic {
		return nil, ErrState
	}
	if v := r.byte(); v != stateVersion {
		return nil, fmt.Errorf("%w: version %d", ErrState, v)
	}
	s := new(State)
	copy(s.ticket.token[:], r.take(tokenSize))
	s.ticket.addr, s.local, s.remote = r.addr(), r.addr(), r.addr()
	s.flags, s.reading, s.writing = r.byte(), readState(r.byte()), writeState(r.byte())
	s.linger, s.readBuffer = int32(r.word()), r.word()
	u := &s.urgent
	for _, n := range []*uint64{&s.suspends, &s.in, &s.out, &u.arrived, &u.taken, &u.mark, &u.sent, &u.acked} {
		*n = r.long()
	}
	for range min(r.byte(), urgentWindow+1) {
		mark := r.long()
		u.queue = append(u.queue, urgentItem{data: r.bytes(), mark: mark})
	}
	s.unread = r.bytes()
	if r.bad || len(r.b) > 0 || !s.sane() {
		return nil, ErrState
	}
	return s, nil
}

// sane reports that no core would get into trouble with s.
func (s *State) sane() bool {
	u := &s.urgent
	for _, it := range u.queue {
		if len(it.data) == 0 || len(it.data) > maxUrgent || it.mark > u.mark {
			return false
		}
	}
	return s.ticket.addr.IsValid() && s.local.IsValid() && s.remote.IsValid() &&
		s.readBuffer > 0 && s.readBuffer < 1<<31 && uint64(len(s.unread)) <= s.in && s.in <= maxMark && s.out <= maxMark &&
		u.taken <= u.arrived && len(u.queue) <= urgentWindow && u.arrived-u.taken <= urgentWindow &&
		s.reading <= readEOF && s.writing <= writeEnded &&
		(s.reading == readShut || uint64(len(u.queue)) <= u.arrived-u.taken) &&
		u.acked <= u.sent && u.sent-u.acked <= urgentWindow && u.mark <= maxMark && u.arrived <= maxMark && u.sent <= maxMark
}

// state is what there is to go on with elsewhere, with the peer waiting at t. It needs mu.
func (c *Conn) state(t ticket) []byte {
	s := State{ticket: t, local: c.ep.LocalAddr(), remote: c.ep.RemoteAddr(), linger: int32(c.linger)}
	if zone := s.remote.Addr().Zone(); zone != "" {
		s.ticket.addr = netip.AddrPortFrom(t.addr.Addr().WithZone(zone), t.addr.Port())
	}
	if c.move.local.IsValid() {
		s.local, s.remote = c.move.local, c.move.remote
	}
	c.core.snapshot(&s)
	return s.Append(nil)
}

// snapshot notes what there is of the stream.
func (c *core) snapshot(s *State) {
	if c.dialer {
		s.flags = stateDialer
	}
	s.reading, s.writing = c.reading, c.writing
	s.readBuffer, s.suspends = uint32(min(c.readBuffer, 1<<31-1)), c.suspends
	s.in, s.out = c.arrived, c.stream.written
	if u := c.urg; u != nil {
		s.urgent = urgentState{arrived: u.arrived, taken: u.taken, mark: u.mark, sent: u.sent, acked: u.acked}
		for i := range u.queue.Len() {
			s.urgent.queue = append(s.urgent.queue, *u.queue.At(i))
		}
	}
	s.unread = make([]byte, 0, c.queued)
	for i := range c.queue.Len() {
		s.unread = append(s.unread, c.queue.At(i).data...)
	}
}
