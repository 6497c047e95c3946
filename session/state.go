package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
)

// State is an end of a session that was handed over, as Handover has left it. Its fields are for this package.
type State struct {
	Version       int
	Token         token
	Peer          netip.AddrPort // where the peer waits
	Local, Remote netip.AddrPort // of the connection, as the application sees them
	Dialer        bool
	Reading       readState
	Writing       writeState
	Linger        int32
	ReadBuffer    uint32
	Suspends      uint64
	In, Out       uint64 // bytes of the stream received, and sent
	Urgent        urgentState
	Unread        []byte // received, not read
}

// urgentState is what there is of urgent messages.
type urgentState struct {
	Arrived, Taken, Mark, Sent, Acked uint64
	Queue                             []urgentItem
}

// stateVersion is that of a State. A State is for programs of one version: unlike a hello it does not grow.
const stateVersion = 3

// Addr is where the peer waits: the address that the new end connects to, by the provider of the old one.
func (s *State) Addr() netip.AddrPort { return s.Peer }

// LocalAddr and RemoteAddr are the addresses of the connection, which stay as they were.
func (s *State) LocalAddr() netip.AddrPort  { return s.Local }
func (s *State) RemoteAddr() netip.AddrPort { return s.Remote }

// Encode returns the State as bytes.
func (s *State) Encode() []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // nothing in it can fail
	}
	return b
}

// ErrState is the error of ParseState.
var ErrState = errors.New("session: malformed state of a handed over connection")

// ParseState decodes a State.
func ParseState(b []byte) (*State, error) {
	s := new(State)
	switch err := json.Unmarshal(b, s); {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	case s.Version != stateVersion:
		return nil, fmt.Errorf("%w: version %d", ErrState, s.Version)
	case !s.sane() || !s.Urgent.sane(s.Reading):
		return nil, ErrState
	}
	return s, nil
}

// sane reports that no core would get into trouble with s.
func (s *State) sane() bool {
	return s.Peer.IsValid() && s.Local.IsValid() && s.Remote.IsValid() &&
		s.Reading <= readEOF && s.Writing <= writeEnded && s.ReadBuffer > 0 && s.ReadBuffer < 1<<31 &&
		uint64(len(s.Unread)) <= s.In && s.In <= maxMark && s.Out <= maxMark
}

func (u *urgentState) sane(r readState) bool {
	for _, it := range u.Queue {
		if len(it.Data) == 0 || len(it.Data) > maxUrgent || it.Mark > u.Mark {
			return false
		}
	}
	return u.Taken <= u.Arrived && len(u.Queue) <= urgentWindow && u.Arrived-u.Taken <= urgentWindow &&
		(r == readShut || uint64(len(u.Queue)) <= u.Arrived-u.Taken) &&
		u.Acked <= u.Sent && u.Sent-u.Acked <= urgentWindow &&
		u.Mark <= maxMark && u.Arrived <= maxMark && u.Sent <= maxMark
}

// state is what there is to go on with elsewhere, with the peer waiting at t. It needs mu.
func (c *Conn) state(t ticket) []byte {
	s := State{Version: stateVersion, Token: t.token, Peer: t.addr, Local: c.local, Remote: c.remote, Linger: int32(c.linger)}
	if zone := c.ep.RemoteAddr().Addr().Zone(); zone != "" {
		s.Peer = netip.AddrPortFrom(t.addr.Addr().WithZone(zone), t.addr.Port())
	}
	c.core.snapshot(&s)
	return s.Encode()
}

// snapshot notes what there is of the stream.
func (c *core) snapshot(s *State) {
	s.Dialer, s.Reading, s.Writing = c.dialer, c.reading, c.writing
	s.ReadBuffer, s.Suspends = uint32(min(c.readBuffer, 1<<31-1)), c.suspends
	s.In, s.Out = c.arrived, c.stream.written
	if u := c.urg; u != nil {
		s.Urgent = urgentState{Arrived: u.arrived, Taken: u.taken, Mark: u.mark, Sent: u.sent, Acked: u.acked}
		for i := range u.queue.Len() {
			s.Urgent.Queue = append(s.Urgent.Queue, *u.queue.At(i))
		}
	}
	for i := range c.queue.Len() {
		s.Unread = append(s.Unread, c.queue.At(i).data...)
	}
}
