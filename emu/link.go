package emu

import (
	"sync"
	"time"

	"sansock/internal/alarm"
	"sansock/internal/ring"
	"sansock/provider"
)

// Link is the shape of what a provider's endpoints send. The zero value has none: everything
// arrives at once. Where only one end has a shape, the other direction is unshaped. A connection
// with a shape copies more.
type Link struct {
	Latency   time.Duration // from the end of sending to arrival, one way
	Bandwidth int64         // bytes per second; 0: no bound
}

func (l Link) shaped() bool { return l.Latency > 0 || l.Bandwidth > 0 }

// requestSize is what an RDMA read sends to the owner of the memory.
const requestSize = 32

// maxSpare bounds the buffers that a link keeps.
const maxSpare = 16

// parcel is something on its way.
type parcel struct {
	due  time.Time
	from *endpoint // who posted it
	kind provider.Op
	ctx  uint64
	slot int32

	inline    bool // no completion
	solicited bool
	answer    bool            // the data of a read comes back
	fail      provider.Status // an injected fault
	body      []byte          // a message; a buffer of the link if inline
	rdma      provider.RDMA   // or a transfer
}

// link is one direction of a connection with a shape: a queue in time. It needs no goroutine while
// nothing is due. When the connection ends, however it does, the link is flushed: what is on its
// way arrives at that moment, where the gates of the endpoints decide what becomes of it. A flushed
// link carries everything at once.
type link struct {
	Link
	to *endpoint

	mu      sync.Mutex // a leaf: not held while a parcel is delivered
	settled sync.Cond  // running has fallen
	queue   ring.Ring[parcel]
	inline  int       // inline messages in queue
	free    time.Time // when the sender has sent what is queued
	alarm   alarm.Alarm
	fires   func() // what it calls
	active  bool   // the alarm is set, or run is
	running int    // parcels being delivered
	flushed bool
	spare   [][]byte // buffers of inline messages that have arrived
}

// buffer returns an empty buffer for an inline message. There is no link where only a fault is to
// happen.
func (l *link) buffer() []byte {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.spare)
	if n == 0 {
		return nil
	}
	b := l.spare[n-1]
	l.spare = l.spare[:n-1]
	return b
}

func newLink(l Link, from *endpoint) *link {
	x := &link{Link: l, to: from.peer}
	x.settled.L = &x.mu
	x.fires = x.fire
	return x
}

// send puts p on its way. It answers StatusQueueFull when there are more inline messages than the
// peer can ever have receives for, and StatusDisconnected for an inline message that comes too
// late.
func (l *link) send(p parcel, size int) provider.Status {
	l.mu.Lock()
	if l.flushed {
		l.mu.Unlock()
		return p.arrive()
	}
	if p.inline {
		if l.inline > l.to.attr.MaxRecvs {
			l.mu.Unlock()
			return provider.StatusQueueFull
		}
		l.inline++
	}
	if now := time.Now(); l.free.Before(now) {
		l.free = now
	}
	if l.Bandwidth > 0 {
		l.free = l.free.Add(time.Duration(float64(size) / float64(l.Bandwidth) * float64(time.Second)))
	}
	p.due = l.free.Add(l.Latency)
	l.queue.Push(p)
	if l.active {
		l.mu.Unlock()
	} else {
		l.active = true
		l.run()
	}
	return provider.StatusOK
}

// fire is what the alarm calls.
func (l *link) fire() {
	l.mu.Lock()
	l.run()
}

// run delivers what is due, and sets the alarm for the rest. Called with mu held, which it
// releases.
func (l *link) run() {
	for l.queue.Len() > 0 && !l.flushed {
		if d := time.Until(l.queue.Front().due); d > 0 {
			l.alarm.Set(d, l.fires)
			l.mu.Unlock()
			return
		}
		l.step()
	}
	l.active = false
	l.mu.Unlock()
}

// step delivers the first parcel. Called with mu held, which it releases meanwhile.
func (l *link) step() {
	p := l.queue.Pop()
	if p.inline {
		l.inline--
	}
	l.running++
	l.mu.Unlock()
	p.arrive()
	l.mu.Lock()
	if p.inline && len(l.spare) < maxSpare {
		l.spare = append(l.spare, p.body[:0])
	}
	l.running--
	l.settled.Broadcast()
}

// flush delivers everything at once, now and from now on. With inOrder it waits for the parcel that
// the alarm is delivering, and so cannot be called by a delivery itself; without, nothing can
// arrive any more anyway.
func (l *link) flush(inOrder bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flushed = true
	l.alarm.Stop()
	for {
		if inOrder && l.running > 0 {
			l.settled.Wait()
		} else if l.queue.Len() > 0 {
			l.step()
		} else {
			return
		}
	}
}

// arrive is the end of p's way. The answer is that of send.
func (p *parcel) arrive() provider.Status {
	peer := p.from.peer
	var st provider.Status
	switch {
	case p.fail != provider.StatusOK:
		st = p.fail
	case p.kind == provider.OpSend:
		st = peer.deliver(p.body, nil, p.solicited, false)
	case p.kind == provider.OpRead && !p.answer:
		p.answer = true
		return peer.egress().send(*p, len(p.rdma.Local.Bytes))
	default:
		st = peer.reach(&p.rdma, p.kind)
	}
	if p.inline {
		switch st {
		case provider.StatusDisconnected:
			return st
		case provider.StatusOK, statusLost:
		default:
			p.from.sendFailed(p.ctx, st)
		}
		return provider.StatusOK
	}
	if st == provider.StatusDisconnected {
		st = provider.StatusAborted // it had been posted
	}
	p.from.end(p.ctx, p.slot, p.kind, st)
	return provider.StatusOK
}

// egress is the link that e sends through, nil if it has no shape.
func (e *endpoint) egress() *link { return e.conn.links[e.side()] }
