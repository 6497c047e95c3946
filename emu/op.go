package emu

import (
	"sansock/internal/regtable"
	"sansock/provider"
)

// begin admits an operation whose memory is s. need says that it must be registered. It returns the
// slot, or none for memory that is not registered.
func (e *endpoint) begin(s *provider.Segment, kind provider.Op, need bool) (int32, error) {
	e.lock()
	defer e.unlock()
	if st := e.refusal(); st != provider.StatusOK {
		return regtable.None, st
	}
	if kind == provider.OpSend {
		if e.cq.posted[provider.OpSend] >= uint32(e.attr.MaxSends) {
			return regtable.None, provider.StatusQueueFull
		}
	} else if e.cq.posted[provider.OpWrite]+e.cq.posted[provider.OpRead] >= uint32(e.attr.MaxRDMAs) {
		return regtable.None, provider.StatusQueueFull
	}
	i := int32(regtable.None)
	if need || s.Handle != 0 {
		var ok bool
		if i, _, ok = e.table.Local(s); !ok {
			return regtable.None, provider.StatusLocal
		}
		e.table.Slots[i].Posted++
	}
	e.cq.posted[kind]++
	e.work.own++
	return i, nil
}

// end completes what begin began. After an answer that ends the connection it does that, too.
// StatusDisconnected undoes begin, and is returned as the error of an operation that was not
// posted.
func (e *endpoint) end(ctx uint64, slot int32, kind provider.Op, st provider.Status) error {
	e.lock()
	e.work.own--
	if st == statusLost {
		e.stuck.Push(op{ctx, slot, kind})
		e.ending()
		e.unlock()
		return nil
	}
	if slot != regtable.None {
		e.table.Slots[slot].Posted--
	}
	var err error
	wake := false
	if st == provider.StatusDisconnected {
		e.cq.posted[kind]--
		err = st
		if e.life != lifeOpen {
			err = provider.StatusClosed
		}
	} else {
		wake = e.push(comp{ctx: ctx, op: kind, status: st, urgent: st != provider.StatusOK})
	}
	if e.ending() && !wake {
		wake = e.rouse(true)
	}
	e.unlock()
	if wake {
		e.callWake()
	}
	switch st {
	case provider.StatusOK, provider.StatusAborted, provider.StatusDisconnected:
	default:
		e.sever(st)
	}
	return err
}

// ending follows the fall of a count. It reports that the end of the connection, which has waited
// for that, can be polled now. Called with the lock held.
func (e *endpoint) ending() bool {
	e.signal()
	return e.gate&gateOver != 0 && e.settled()
}
