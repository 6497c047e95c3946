//go:build linux

package shm

import (
	"encoding/binary"

	"sansock/internal/regtable"
	"sansock/provider"
)

// An entry of the table of requests, in words.
const (
	entryDesc   = 0 // three words
	entryOffset = 3
	entryStage  = 4
	entryLength = 5
	entryOp     = 6
)

// PostWrite implements provider.Endpoint.
func (e *endpoint) PostWrite(w provider.RDMA) error { return e.request(&w, provider.OpWrite) }

// PostRead implements provider.RDMAReader.
func (e *endpoint) PostRead(r provider.RDMA) error { return e.request(&r, provider.OpRead) }

func (e *endpoint) request(r *provider.RDMA, op provider.Op) error {
	n := len(r.Local.Bytes)
	if n > maxRDMA {
		return provider.StatusTooLong
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.refusal(); s != provider.StatusOK {
		return s
	}
	if e.out.table == nil {
		return provider.StatusNotReady // the peer has not accepted
	}
	if e.cq.posted[provider.OpWrite]+e.cq.posted[provider.OpRead] >= maxRDMAs {
		return provider.StatusQueueFull
	}
	i := int32(regtable.None)
	if r.Local.Handle != 0 {
		var ok bool
		if i, _, ok = e.table.Local(&r.Local); !ok {
			return provider.StatusLocal
		}
	}
	if e.reqs == nil {
		e.reqs = new([maxRDMAs]req)
	}
	k := 0
	for e.reqs[k].op != 0 { // there is one, as no more are in use than are posted
		k++
	}
	b, err := e.alloc(n)
	if err != nil {
		return err
	}
	if op == provider.OpWrite {
		copy(b.mem, r.Local.Bytes)
	}
	if i != regtable.None {
		e.table.Slots[i].Posted++
	}
	e.cq.posted[op]++
	e.reqs[k] = req{ctx: r.Context, local: r.Local.Bytes, stage: b, slot: i, op: op}
	t := e.out.table[k*entryWords:][:entryWords]
	for j := range 3 {
		t[entryDesc+j].Store(binary.LittleEndian.Uint64(r.Remote[8*j:]))
	}
	t[entryOffset].Store(r.Offset)
	t[entryStage].Store(uint64(b.at))
	t[entryLength].Store(uint64(n))
	t[entryOp].Store(uint64(op))
	e.emit(evRequest, uint8(k), 0, 0, false)
	return nil
}

// serve does what the peer asks for in entry k, or refuses it. Called with mu held.
func (e *endpoint) serve(k uint8) outcome {
	var w [entryWords]uint64
	for j := range w {
		w[j] = e.in.table[int(k)*entryWords+j].Load()
	}
	if w[entryLength] > maxRDMA || w[entryStage]>>ptrBits != 0 {
		return wrong
	}
	right := provider.RightWrite
	switch provider.Op(w[entryOp]) {
	case provider.OpRead:
		right = provider.RightRead
	case provider.OpWrite:
	default:
		return wrong
	}
	n := int(w[entryLength])
	stage, ok := at(*e.l.peerSegs.Load(), ptr(w[entryStage]), n)
	if !ok {
		return later
	}
	i, ok := e.table.Remote([3]uint64(w[entryDesc:]), right, w[entryOffset], n)
	if !ok {
		e.emit(evAnswer, k, int(provider.StatusAccess), 0, true)
		e.end(provider.StatusAccess)
		return taken
	}
	mem := e.table.Slots[i].Bytes[w[entryOffset]:][:n]
	if right == provider.RightRead {
		copy(stage, mem)
	} else {
		copy(mem, stage)
	}
	e.emit(evAnswer, k, int(provider.StatusOK), 0, false)
	return taken
}

// answered completes request k. It reports whether there is one. Called with mu held.
func (e *endpoint) answered(k uint8, status uint32) bool {
	q := &e.reqs[k]
	if q.op == 0 {
		return false
	}
	st := provider.StatusOK
	if status != uint32(st) {
		st = provider.StatusAccess
	} else if q.op == provider.OpRead {
		copy(q.local, q.stage.mem)
	}
	c := comp{ctx: q.ctx, op: q.op, status: st, urgent: st != provider.StatusOK}
	e.free(q.stage)
	if q.slot != regtable.None {
		e.table.Slots[q.slot].Posted--
	}
	*q = req{}
	e.push(c)
	return true
}

func (e *endpoint) stuck() bool {
	for i := 0; e.reqs != nil && i < maxRDMAs; i++ {
		if e.reqs[i].op != 0 {
			return true
		}
	}
	return false
}
