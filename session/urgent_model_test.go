package session

import (
	"encoding/binary"
	"fmt"
)

// stepUrgent sends an urgent message, if one can leave. It says its number, and between which places in the stream its mark
// has to lie.
func (e *modelEnd) stepUrgent() {
	e.lock()
	n := 24 + e.r.IntN(maxUrgent-24+1)
	if e.fin || e.writeOver() || !e.canUrgent(n) {
		return
	}
	p := make([]byte, n)
	binary.LittleEndian.PutUint64(p, e.urgents[0])
	binary.LittleEndian.PutUint64(p[8:], e.accepted)
	binary.LittleEndian.PutUint64(p[16:], e.accepted+uint64(len(e.writing)))
	e.urgents[0]++
	e.sendUrgent(p)
}

// stepTakeUrgent takes an urgent message, if there is one, and checks it.
func (e *modelEnd) stepTakeUrgent() {
	e.lock()
	m, ok, _ := e.takeUrgent()
	if !ok || e.bad != "" {
		return
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(m.Data[8*i:]) }
	mark := uint64(int64(e.readPosition()) + m.Ahead)
	if word(0) != e.urgents[1] || mark < word(1) || mark > word(2) {
		e.bad = fmt.Sprintf("end %d: urgent message %d instead of %d, at %d, to be from %d to %d",
			e.dir, word(0), e.urgents[1], mark, word(1), word(2))
	}
	e.urgents[1]++
}
