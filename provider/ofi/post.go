//go:build ofi && cgo && linux

package ofi

import (
	"encoding/binary"
	"runtime"
	"time"

	"sansock/provider"
)

// refusal is why nothing can be posted, StatusOK if something can. Called with mu held.
func (e *endpoint) refusal() provider.Status {
	switch {
	case e.closed:
		return provider.StatusClosed
	case e.over:
		return provider.StatusDisconnected
	}
	return provider.StatusOK
}

// PostRecv implements provider.Endpoint.
func (e *endpoint) PostRecv(r provider.Recv) error {
	e.mu.Lock()
	st := e.refusal()
	reg := e.find(&r.Buffer)
	switch {
	case st != provider.StatusOK:
	case e.posted[provider.OpRecv] >= e.attr.MaxRecvs:
		st = provider.StatusQueueFull
	case reg == nil:
		st = provider.StatusLocal
	}
	if st != provider.StatusOK {
		e.mu.Unlock()
		return st
	}
	dry := e.hearing == 0
	i := e.enter(provider.OpRecv, r.Context, reg)
	e.slots[i].buf = r.Buffer.Bytes
	e.posted[provider.OpRecv]++
	if !e.first.done {
		e.first.waiting.Push(i)
		e.firstDelivered()
	} else if ret := e.postReceive(i); ret != 0 {
		e.posted[provider.OpRecv]--
		e.drop(i)
		st = e.failed(ret)
	}
	// Where the fabric had no receive, it may have taken a message in just before run went to sleep: then there is nothing
	// left in the socket that would wake it.
	kick := e.rouse || e.lost.Load() || dry
	e.mu.Unlock()
	if kick || e.idling.Load() {
		e.sleeper.kick()
	}
	return st.Err()
}

// enter fills a slot. Called with mu held.
func (e *endpoint) enter(op provider.Op, context uint64, reg *registration) int32 {
	i := e.vacant()
	s := &e.slots[i]
	s.op, s.context, s.reg = op, context, reg
	if reg != nil {
		reg.posted++
	}
	return i
}

// postReceive posts the receive of a slot to the fabric. Called with mu held.
func (e *endpoint) postReceive(i int32) int {
	s := &e.slots[i]
	ret := e.c.recv(s.reg.span(s.buf), uint64(i)+1)
	if ret == 0 {
		e.hearing++
	}
	return ret
}

// failed is the status of an operation that the library did not take. Called with mu held.
func (e *endpoint) failed(ret int) provider.Status {
	switch {
	case ret == resultAgain:
		return provider.StatusQueueFull
	case e.closed:
		return provider.StatusClosed
	}
	e.loses(provider.StatusLink)
	return provider.StatusDisconnected
}

// PostSend implements provider.Endpoint.
func (e *endpoint) PostSend(s provider.Send) error {
	if s.IsInline() {
		return e.sendInline(&s)
	}
	n := len(s.Local.Bytes)
	if n > e.attr.MaxMessage {
		return provider.StatusTooLong
	}
	e.mu.Lock()
	st := e.refusal()
	reg := e.find(&s.Local)
	switch {
	case st != provider.StatusOK:
	case e.posted[provider.OpSend] >= e.attr.MaxSends:
		st = provider.StatusQueueFull
	case reg == nil:
		st = provider.StatusLocal
	}
	if st != provider.StatusOK {
		e.mu.Unlock()
		return st
	}
	i := e.enter(provider.OpSend, s.Context, reg)
	e.posted[provider.OpSend]++
	if !e.first.sent {
		if all, ret := e.sendFirst(i, n, s.Local.Bytes, nil); all || ret != 0 {
			return e.result(i, ret)
		}
	}
	where := reg.span(s.Local.Bytes)
	e.begin()
	ret := e.again(func() int { return e.c.send(where, uint64(i)+1) })
	return e.end(i, ret)
}

// sendInline is PostSend of an inline message. On sockets there is no completion, which would wake run for nothing: what the
// library has taken it has passed on to the kernel, unless something larger is in the way.
func (e *endpoint) sendInline(s *provider.Send) error {
	a, b := s.Inline[0], s.Inline[1]
	n := len(a) + len(b)
	if n > e.attr.MaxInline {
		return provider.StatusTooLong
	}
	e.mu.Lock()
	st := e.refusal()
	counted := e.prov.kind != fabricTCP || e.sending > 0 || !e.first.sent
	for try := 0; st == provider.StatusOK && counted && e.inlines >= e.in.tx*maxInlines/queueTx; try++ {
		if try == tries {
			st = provider.StatusQueueFull // the peer cannot have as many receives
			break
		}
		e.mu.Unlock()
		e.reap(try)
		e.mu.Lock()
		st = e.refusal()
	}
	if st != provider.StatusOK {
		e.mu.Unlock()
		return st
	}
	i := none
	if counted {
		i = e.enter(provider.OpSend, s.Context, nil)
		e.slots[i].inline = true
		e.inlines++
	}
	if !e.first.sent {
		if all, ret := e.sendFirst(i, n, a, b); all || ret != 0 {
			return e.result(i, ret)
		}
	}
	e.begin()
	ret := e.again(func() int { return e.c.inject(a, b, counted, uint64(i)+1) })
	return e.end(i, ret)
}

// PostWrite implements provider.Endpoint.
func (e *endpoint) PostWrite(w provider.RDMA) error { return e.rdma(provider.OpWrite, &w) }

// PostRead implements provider.RDMAReader.
func (e *endpoint) PostRead(r provider.RDMA) error { return e.rdma(provider.OpRead, &r) }

func (e *endpoint) rdma(op provider.Op, r *provider.RDMA) error {
	b := r.Local.Bytes
	if len(b) > e.attr.MaxRDMA {
		return provider.StatusTooLong
	}
	e.mu.Lock()
	st := e.refusal()
	var reg *registration
	need := e.in.registers || r.Local.Handle != 0
	if need {
		reg = e.find(&r.Local)
	}
	switch {
	case st != provider.StatusOK:
	case e.posted[provider.OpWrite]+e.posted[provider.OpRead] >= e.attr.MaxRDMAs:
		st = provider.StatusQueueFull
	case need && reg == nil:
		st = provider.StatusLocal
	}
	if st != provider.StatusOK {
		e.mu.Unlock()
		return st
	}
	i := e.enter(op, r.Context, reg)
	e.posted[op]++
	var where span
	if need {
		where = reg.span(b)
	} else if len(b) > 0 {
		e.slots[i].pin.Pin(&b[0])
		where = spanOf(b)
	}
	addr, key := binary.LittleEndian.Uint64(r.Remote[0:])+r.Offset, binary.LittleEndian.Uint64(r.Remote[8:])
	e.begin()
	ret := e.again(func() int {
		if op == provider.OpRead {
			return e.c.rread(where, addr, key, uint64(i)+1)
		}
		return e.c.write(where, addr, key, uint64(i)+1)
	})
	return e.end(i, ret)
}

// begin starts a call of the library that puts an operation into the transmit queue. Called with mu held, which it releases.
func (e *endpoint) begin() {
	e.busy++
	e.sending++
	e.mu.Unlock()
}

// end follows the call that begin began for a slot, or for none.
func (e *endpoint) end(i int32, ret int) error {
	e.mu.Lock()
	e.leave()
	if i == none || ret != 0 {
		e.sending--
	}
	return e.result(i, ret)
}

// result makes the error of a call of the library, and undoes enter where it failed. Called with mu held, which it releases.
func (e *endpoint) result(i int32, ret int) error {
	if ret == 0 {
		e.mu.Unlock()
		return nil
	}
	if i != none {
		s := &e.slots[i]
		if s.inline {
			e.inlines--
		} else {
			e.posted[s.op]--
		}
		e.drop(i)
	}
	st := e.failed(ret)
	kick := e.lost.Load()
	e.mu.Unlock()
	if kick {
		e.sleeper.kick()
	}
	return st
}

// again repeats a call of the library that has no room for an operation just now. There is less posted than it
// has room for, so that does not last.
func (e *endpoint) again(call func() int) int {
	for try := 0; ; try++ {
		ret := call()
		if ret != resultAgain || try == tries || e.lost.Load() {
			return ret
		}
		e.reap(try)
	}
}

// tries is how often a post looks whether operations that are over make room. run may be late to do so.
const tries = 100

// reap takes completions in run's place, and the longer it is tried, gives the fabric time. run does the waking.
func (e *endpoint) reap(try int) {
	switch {
	case try < 1:
	case try < 10:
		runtime.Gosched()
	default:
		time.Sleep(shortNap)
	}
	e.polling.Lock()
	defer e.polling.Unlock()
	if e.gone {
		return
	}
	n, err := e.c.read()
	e.mu.Lock()
	e.take(n)
	kick := e.rouse || e.lost.Load()
	e.mu.Unlock()
	if err != nil {
		e.lose(provider.StatusLink)
	} else if kick {
		e.sleeper.kick()
	}
}
