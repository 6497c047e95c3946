package providertest

import (
	"runtime"
	"sync/atomic"
	"time"

	"sansock/provider"
)

// access is one RDMA operation that the owner of the memory has to refuse.
type access struct {
	op   provider.Op
	desc provider.Descriptor
	off  uint64
	n    int
}

// refused makes an access from in to memory of vic, and checks that it is refused: nothing of what must stay has
// changed, and nothing of it has come out. The judgement is by the memory, as the completion of a refused write may say
// that it succeeded, and the connection may end or not. When refused returns, the access has been dealt with.
func (x *rig) refused(what string, in, vic *end, a access, stay ...*mem) {
	for _, m := range stay {
		m.freeze()
	}
	local := x.mem(in, "intruder's memory", a.n)
	region, err := in.ep.Register(local.b)
	if err != nil {
		x.fatalf("Register: %v", err)
	}
	if a.op == provider.OpWrite {
		local.freeze()
	}
	// A message behind the access tells when it is over, if the connection survives.
	fence := uint64(0)
	if !vic.isClosed() {
		fence, err = vic.recv(whole(vic.register(x.mem(vic, "receive", 16))))
		if err != nil {
			x.wantStatus("PostRecv", err, provider.StatusDisconnected)
		}
	}
	id, err := in.rdma(a.op, whole(region), a.desc, a.off)
	if err != nil {
		x.wantStatus(what, err, provider.StatusAccess, provider.StatusDisconnected)
	} else {
		in.trySay([]byte("over"), true) // an error is an end, too
		x.await(what+": the access to be over", func() bool {
			return in.isDone(id) && (vic.isDone(fence) || vic.hasEnded() || vic.isClosed() || in.hasEnded())
		}, in, vic)
		c, _ := in.done(id)
		switch c.Status {
		case provider.StatusAccess, provider.StatusAborted, provider.StatusDisconnected:
		case provider.StatusOK:
			if a.op == provider.OpRead {
				x.errorf("%s: a read that has to be refused has succeeded", what)
			}
		default:
			x.errorf("%s: %s", what, describe(c))
		}
	}
	for _, m := range stay {
		m.check(what)
		if a.op == provider.OpRead && m.leaked(local.b) {
			x.errorf("%s: the intruder has read the %s", what, m.name)
		}
	}
}

func (e *end) isClosed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

// alive returns the connection of in and vic if it still stands, or else a new one like it.
func (x *rig) alive(in, vic *end) (*end, *end) {
	in.poll()
	vic.poll()
	if in.hasEnded() || vic.hasEnded() {
		return x.another(in)
	}
	return in, vic
}

// opsFor are the accesses that in can make at all: writes, and reads where there are any.
func opsFor(in *end) []provider.Op {
	if in.reads() {
		return []provider.Op{provider.OpWrite, provider.OpRead}
	}
	return []provider.Op{provider.OpWrite}
}

// right is what op needs.
func right(op provider.Op) provider.Rights {
	if op == provider.OpRead {
		return provider.RightRead
	}
	return provider.RightWrite
}

// hammer is an intruder that accesses the same memory again and again.
type hammer struct {
	succeeded atomic.Int64
	step      chan struct{} // one more has succeeded
	halt      atomic.Bool
	ended     chan string // why it has, before it was told to
	done      func()      // joins
	local     []*mem
}

// hammer begins accesses of n bytes, a few at a time, from in to the memory of d. It ends when one fails, or after a
// few more when it is told to.
func (x *rig) hammer(in *end, op provider.Op, d provider.Descriptor, n int) *hammer {
	h := &hammer{step: make(chan struct{}, 1), ended: make(chan string, 1)}
	depth := min(3, in.attr.MaxRDMAs)
	var segs []provider.Segment
	for range depth {
		m := x.mem(in, "intruder's memory", n)
		h.local = append(h.local, m)
		segs = append(segs, whole(in.register(m)))
	}
	h.done = x.spawn(func() {
		ids := make([]uint64, depth)
		more := 2 * depth
		for i := 0; more > 0 && !x.over(); i++ {
			k := i % depth
			if ids[k] != 0 {
				if c := in.completion(ids[k]); c.Status != provider.StatusOK {
					h.ended <- describe(c)
					return
				}
				h.succeeded.Add(1)
				select {
				case h.step <- struct{}{}:
				default:
				}
			}
			id, err := in.rdma(op, segs[k], d, 0)
			if err != nil {
				x.wantStatus("an access", err, provider.StatusDisconnected, provider.StatusAccess)
				h.ended <- err.Error()
				return
			}
			ids[k] = id
			if h.halt.Load() {
				more--
			}
			if i%8 == 7 {
				runtime.Gosched()
			}
		}
	})
	return h
}

// hot waits until some accesses have succeeded, in every round some more, to hit another moment.
func (h *hammer) hot(x *rig, round int) {
	limit := time.NewTimer(x.Wait)
	defer limit.Stop()
	for h.succeeded.Load() < int64(4+round%5) {
		select {
		case <-h.step:
		case <-x.failed:
			runtime.Goexit()
		case why := <-h.ended:
			x.fatalf("%d accesses have succeeded, the next has not: %s", h.succeeded.Load(), why)
		case <-limit.C:
			x.fatalf("%d accesses have succeeded in %v", h.succeeded.Load(), x.Wait)
		}
	}
}

// stop ends the accesses.
func (h *hammer) stop() {
	h.halt.Store(true)
	h.done()
}

// settle waits until what in has posted is over: until a message behind it has arrived, or an end has ended.
func (x *rig) settle(in, vic *end) {
	fence, err := vic.recv(whole(vic.register(x.mem(vic, "receive", 16))))
	if err != nil {
		return
	}
	in.trySay([]byte("over"), true)
	x.await("the accesses to be over", func() bool {
		return vic.isDone(fence) || vic.hasEnded() || in.hasEnded()
	}, in, vic)
}

// jitter is a short time that is different in every round, to hit another moment.
func jitter(round int) { time.Sleep(time.Duration(round%5) * 30 * time.Microsecond) }
