package session

import (
	"fmt"

	"sansock/provider"
)

// audit checks that no credit is lost or made: each receive buffer that end r has posted is either a credit of its
// peer s, or owed, or on its way as a credit, or about to be taken by a message on its way.
func audit(w *fakeWire, ends [2]*modelEnd, moved ...int) error {
	for i, r := range ends {
		s := ends[1-i]
		if err := sane(&r.core, moved...); err != nil {
			return fmt.Errorf("end %d: %w", i, err)
		}
		if r.err != nil || s.err != nil || isDone(&r.core) || isDone(&s.core) {
			continue
		}
		posted := r.recv[0].posted + r.recv[1].posted
		credits := s.win.credits + r.ungranted
		if r.wanted(letterGrow) || r.wanted(letterShrink) {
			credits += r.recv[r.cur].count
		}
		grants := func(b []byte) {
			h, err := parseHeader(b)
			if err != nil {
				panic(err)
			}
			credits += int(h.credits)
			if h.kind == kindResize {
				credits += int(h.arg >> 32)
			}
		}
		if r.late != nil {
			grants(lateBytes(&r.core))
		}
		for _, m := range w.ends[i].out {
			if m.op == provider.OpSend {
				grants(m.data)
			}
		}
		for _, c := range w.ends[1-i].cq {
			if c.Op == provider.OpRecv {
				gen, slot := splitContext(c.Context)
				grants(s.recv[gen].segment(slot).Bytes[:c.Len])
			}
		}
		taken := 0
		if s.late != nil {
			taken++
		}
		for _, m := range w.ends[1-i].out {
			if m.op == provider.OpSend {
				taken++
			}
		}
		for _, c := range w.ends[i].cq {
			if c.Op == provider.OpRecv {
				taken++
			}
		}
		if posted != credits+taken {
			return fmt.Errorf("end %d has posted %d receives; its peer has or gets %d credits, %d messages are on their way", i, posted, credits, taken)
		}
	}
	return nil
}

// lateBytes is the message that c has postponed.
func lateBytes(c *core) []byte {
	if c.late.IsInline() {
		return c.late.Inline[0]
	}
	return c.late.Local.Bytes
}
