package emu

import (
	"sansock/internal/regtable"
	"sansock/provider"
)

// PostWrite implements provider.Endpoint.
func (e *endpoint) PostWrite(w provider.RDMA) error { return e.rdma(&w, provider.OpWrite) }

// PostRead implements provider.RDMAReader.
func (e *endpoint) PostRead(r provider.RDMA) error {
	if !e.attr.RDMARead {
		return provider.StatusUnsupported
	}
	return e.rdma(&r, provider.OpRead)
}

func (e *endpoint) rdma(r *provider.RDMA, kind provider.Op) error {
	if len(r.Local.Bytes) > e.attr.MaxRDMA {
		return provider.StatusTooLong
	}
	i, err := e.begin(&r.Local, kind, e.attr.LocalRegistration)
	if err != nil {
		return err
	}
	return e.end(r.Context, i, kind, e.peer.reach(r, kind))
}

// reach does an RDMA transfer to or from the memory of e, its owner. The mutex is not held while
// bytes move; the counts keep Deregister and Close waiting instead.
func (e *endpoint) reach(r *provider.RDMA, kind provider.Op) provider.Status {
	right := provider.RightWrite
	if kind == provider.OpRead {
		right = provider.RightRead
	}
	local := r.Local.Bytes
	e.lock()
	if e.gate != 0 {
		lost := e.gate&gateLost != 0
		e.unlock()
		if lost {
			return statusLost
		}
		return provider.StatusDisconnected
	}
	i, ok := e.table.Remote(regtable.Words(&r.Remote), right, r.Offset, len(local))
	if !ok {
		e.unlock()
		return provider.StatusAccess
	}
	s := &e.table.Slots[i]
	mem := s.Bytes[r.Offset:][:len(local)]
	s.Access++
	e.work.peers++
	e.unlock()

	st := provider.StatusOK
	piece := rdmaPiece
	if len(local) > largeRDMA {
		piece = largeRDMAPiece
	}
	for {
		n := min(len(local), piece)
		if kind == provider.OpRead {
			copy(local[:n], mem)
		} else {
			copy(mem, local[:n])
		}
		local, mem = local[n:], mem[n:]
		e.lock()
		if len(local) == 0 {
			break
		}
		if e.gate != 0 {
			st = provider.StatusAborted
			break
		}
		if e.table.Slots[i].State != regtable.Live {
			st = provider.StatusAccess
			break
		}
		e.unlock()
	}
	e.table.Slots[i].Access--
	e.work.peers--
	e.signal()
	e.unlock()
	return st
}
