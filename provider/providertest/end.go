package providertest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"sansock/provider"
)

// end is one end of a connection, with a ledger of what was posted to it. Posting and polling go through the ledger,
// which is how every rule also checks that completions are what they have to be.
type end struct {
	x    *rig
	name string
	ep   provider.Endpoint
	prov provider.Provider
	attr provider.Attributes
	peer *end // nil for half a connection

	dialing bool // it is the dialer's end

	woken atomic.Int64  // calls of the wake function
	token chan struct{} // one since it was last taken

	single bool // poll takes one completion at a time

	mu       sync.Mutex // held while the endpoint is polled, never while it is posted to
	buf      [64]provider.Completion
	polls    int
	posted   map[uint64]*entry
	finished map[uint64]provider.Completion
	log      []provider.Completion // all completions, in order
	ended    bool                  // OpDisconnect has come
	closed   bool                  // Close has been called
	drained  bool                  // and has returned, and what was left has been polled
	wokenAt  int64                 // calls of the wake function when Close returned
}

// entry is a posted operation.
type entry struct {
	op     provider.Op
	size   int  // of a receive
	inline bool // completes only if it fails
	doing  bool // the method that posts it has not returned
}

// adopt makes an end of an endpoint. It will be closed with the rule.
func (x *rig) adopt(ep provider.Endpoint, prov provider.Provider, name string) *end {
	e := &end{
		x: x, name: name, ep: ep, prov: prov, attr: ep.Attributes(), token: make(chan struct{}, 1),
		posted: make(map[uint64]*entry), finished: make(map[uint64]provider.Completion),
	}
	ep.OnWake(func() {
		e.woken.Add(1)
		select {
		case e.token <- struct{}{}:
		default:
		}
	})
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ends = append(x.ends, e)
	return e
}

// poll takes all completions that are there, and returns how many.
func (e *end) poll() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pollLocked()
}

func (e *end) pollLocked() int {
	total := 0
	for {
		size := [...]int{1, 64, 2, 16}[e.polls%4]
		if e.single {
			size = 1
		}
		e.polls++
		n := e.ep.Poll(e.buf[:size])
		if n < 0 || n > size {
			e.x.fatalf("%s: Poll of %d returned %d", e.name, size, n)
		}
		for _, c := range e.buf[:n] {
			e.enter(c)
		}
		total += n
		if n == 0 || e.single {
			return total
		}
		if total > 1<<20 {
			e.x.fatalf("%s: Poll finds no end of completions", e.name)
		}
	}
}

// enter checks one completion. Called with mu held.
func (e *end) enter(c provider.Completion) {
	e.log = append(e.log, c)
	switch {
	case e.drained:
		e.x.errorf("%s: %s after Close, when Poll had already returned 0", e.name, describe(c))
	case e.ended:
		e.x.errorf("%s: %s after OpDisconnect", e.name, describe(c))
	}
	if c.Op == provider.OpDisconnect {
		if !e.ended {
			for id, p := range e.posted {
				if !p.inline && !p.doing {
					e.x.errorf("%s: OpDisconnect before the completion of %s %#x", e.name, opText(p.op), id)
				}
			}
		}
		if c.Status == provider.StatusOK || c.Status == provider.StatusAborted {
			e.x.errorf("%s: %s, which is no reason for an end", e.name, describe(c))
		}
		e.ended = true
		return
	}
	p := e.posted[c.Context]
	if p == nil {
		if first, twice := e.finished[c.Context]; twice {
			e.x.errorf("%s: %s, but that had completed: %s", e.name, describe(c), describe(first))
		} else {
			e.x.errorf("%s: %s, but nothing was posted with this context", e.name, describe(c))
		}
		return
	}
	delete(e.posted, c.Context)
	e.finished[c.Context] = c
	switch {
	case p.op != c.Op:
		e.x.errorf("%s: %s, but %s was posted", e.name, describe(c), opText(p.op))
	case p.inline && c.Status == provider.StatusOK:
		e.x.errorf("%s: %s of an inline send that did not fail", e.name, describe(c))
	case c.Op == provider.OpRecv && c.Status == provider.StatusOK && (c.Len < 0 || c.Len > p.size):
		e.x.errorf("%s: %s, but the receive has %d", e.name, describe(c), p.size)
	}
}

// post posts with do, under a new context.
func (e *end) post(p entry, do func(id uint64) error) (uint64, error) {
	id := e.x.ids.Add(golden) // all 64 bits in use, none repeats
	p.doing = true
	e.mu.Lock()
	e.posted[id] = &p
	e.mu.Unlock()
	err := do(id)
	e.mu.Lock()
	defer e.mu.Unlock()
	p.doing = false
	if err != nil {
		if c, ok := e.finished[id]; ok {
			e.x.errorf("%s: posting failed with %v, yet there is %s", e.name, err, describe(c))
		}
		delete(e.posted, id)
	}
	return id, err
}

func (e *end) recv(s provider.Segment) (uint64, error) {
	return e.post(entry{op: provider.OpRecv, size: len(s.Bytes)}, func(id uint64) error {
		return e.ep.PostRecv(provider.Recv{Context: id, Buffer: s})
	})
}

func (e *end) send(s provider.Segment, solicited bool) (uint64, error) {
	return e.post(entry{op: provider.OpSend}, func(id uint64) error {
		return e.ep.PostSend(provider.Send{Context: id, Local: s, Solicited: solicited})
	})
}

func (e *end) inline(a, b []byte, solicited bool) (uint64, error) {
	return e.post(entry{op: provider.OpSend, inline: true}, func(id uint64) error {
		return e.ep.PostSend(provider.Send{Context: id, Inline: [2][]byte{a, b}, Solicited: solicited})
	})
}

func (e *end) write(s provider.Segment, d provider.Descriptor, off uint64) (uint64, error) {
	return e.rdma(provider.OpWrite, s, d, off)
}

// rdma posts a write or a read. A read needs the extension, see reads.
func (e *end) rdma(op provider.Op, s provider.Segment, d provider.Descriptor, off uint64) (uint64, error) {
	return e.post(entry{op: op}, func(id uint64) error {
		r := provider.RDMA{Context: id, Local: s, Remote: d, Offset: off}
		if op == provider.OpWrite {
			return e.ep.PostWrite(r)
		}
		return e.reader().PostRead(r)
	})
}

// reads reports whether e can RDMA-read memory of its peer.
func (e *end) reads() bool { return e.attr.RDMARead && e.peer.attr.RDMAReadable }

func (e *end) reader() provider.RDMAReader {
	ext, err := e.ep.Extension(provider.GUIDRDMARead)
	if err != nil {
		e.x.fatalf("%s: Extension(GUIDRDMARead): %v", e.name, err)
	}
	r, ok := ext.(provider.RDMAReader)
	if !ok {
		e.x.fatalf("%s: Extension(GUIDRDMARead) is a %T, no RDMAReader", e.name, ext)
	}
	return r
}

// must is for operations that have to be posted.
func (e *end) must(id uint64, err error) uint64 {
	if err != nil {
		e.x.fatalf("%s: posting: %v", e.name, err)
	}
	return id
}

// done reports whether operation id has completed, as far as polled.
func (e *end) done(id uint64) (provider.Completion, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c, ok := e.finished[id]
	return c, ok
}

func (e *end) isDone(id uint64) bool {
	_, ok := e.done(id)
	return ok
}

func (e *end) hasEnded() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ended
}

// completion waits for the completion of an operation.
func (e *end) completion(id uint64) provider.Completion {
	e.x.await(e.name+": a completion", func() bool { return e.isDone(id) }, e.both()...)
	c, _ := e.done(id)
	return c
}

// ok waits for the completion of an operation that should succeed, and returns its length.
func (e *end) ok(id uint64) int {
	c := e.completion(id)
	if c.Status != provider.StatusOK {
		e.x.fatalf("%s: %s", e.name, describe(c))
	}
	return c.Len
}

// gone waits for OpDisconnect.
func (e *end) gone() {
	e.x.await(e.name+": OpDisconnect", e.hasEnded, e.both()...)
}

// both are the ends of the connection, e first.
func (e *end) both() []*end {
	if e.peer == nil {
		return []*end{e}
	}
	return []*end{e, e.peer}
}

func (e *end) register(m *mem) provider.Region {
	r, err := e.ep.Register(m.b)
	if err != nil {
		e.x.fatalf("%s: Register(%d bytes): %v", e.name, len(m.b), err)
	}
	return r
}

func (e *end) expose(m *mem, rights provider.Rights) provider.Region {
	r, err := e.ep.Expose(m.b, rights)
	if err != nil {
		e.x.fatalf("%s: Expose(%d bytes, %d): %v", e.name, len(m.b), rights, err)
	}
	return r
}

// scratch is registered memory of n random bytes.
func (e *end) scratch(n int) provider.Segment {
	return whole(e.register(e.x.mem(e, "scratch memory", n)))
}

// hear posts a receive of n bytes.
func (e *end) hear(n int) (id uint64, m *mem) {
	m = e.x.mem(e, "receive", n)
	return e.must(e.recv(whole(e.register(m)))), m
}

// say sends a short message, whichever way there is, as soon as there is room for it.
func (e *end) say(data []byte, solicited bool) (id uint64) {
	e.retry(func() (err error) { id, err = e.trySay(data, solicited); return err })
	return id
}

func (e *end) trySay(data []byte, solicited bool) (uint64, error) {
	if len(data) <= e.attr.MaxInline {
		return e.inline(data, nil, solicited)
	}
	m := e.x.mem(e, "message", len(data))
	copy(m.b, data)
	r, err := e.ep.Register(m.b)
	if err != nil {
		return 0, err
	}
	return e.send(whole(r), solicited)
}

// talk proves that the connection works: a message each way.
func (e *end) talk() {
	for _, from := range e.both() {
		data := noisy(64, e.x.seed())
		id, m := from.peer.hear(80)
		from.say(data, true)
		if n := from.peer.ok(id); n != len(data) {
			e.x.fatalf("%s: a message of %d bytes arrived with %d", from.peer.name, len(data), n)
		}
		if !m.want("a message", 0, data) {
			e.x.giveUp()
		}
	}
}

// retry repeats an attempt to post while the queue is full.
func (e *end) retry(post func() error) {
	var err error
	if !e.x.awaits(func() bool {
		err = post()
		return provider.StatusOf(err) != provider.StatusQueueFull
	}, e) {
		e.x.fatalf("%s: the queue stays full", e.name)
	}
	if err != nil {
		e.x.fatalf("%s: posting: %v", e.name, err)
	}
}

// asleep waits, without polling e, until its wake function has been called n times in all. The peer is polled.
func (e *end) asleep(n int64) bool {
	limit := time.Now().Add(e.x.Wait)
	for nap := 50 * time.Microsecond; e.woken.Load() < n; nap = min(2*nap, 5*time.Millisecond) {
		if e.x.over() || time.Now().After(limit) {
			return false
		}
		if e.peer != nil {
			e.peer.poll()
		}
		time.Sleep(nap)
	}
	return true
}

// tokenIn sleeps until the wake function is called, and reports whether it was in time.
func (e *end) tokenIn() bool {
	limit := time.NewTimer(e.x.Wait)
	defer limit.Stop()
	select {
	case <-e.token:
		return true
	case <-e.x.failed:
		return false
	case <-limit.C:
		return false
	}
}

// close closes the endpoint, unless that was done, and takes what is left.
func (e *end) close() {
	e.mu.Lock()
	again := e.closed
	e.closed = true
	e.mu.Unlock()
	if again {
		return
	}
	if !e.x.within(e.name+": Close", func() {
		if err := e.ep.Close(); err != nil {
			e.x.errorf("%s: Close: %v", e.name, err)
		}
	}) {
		return
	}
	e.wokenAt = e.woken.Load()
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.pollLocked() > 0 && e.single {
	}
	for id, p := range e.posted {
		if !p.inline && !p.doing {
			e.x.errorf("%s: %s %#x has not completed though Close has returned", e.name, opText(p.op), id)
		}
	}
	e.drained = true
}

// verdict looks at a closed end for the last time.
func (e *end) verdict() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.drained {
		return
	}
	e.pollLocked()
	for id, p := range e.posted {
		if !p.inline {
			e.x.errorf("%s: %s %#x never completed", e.name, opText(p.op), id)
			delete(e.posted, id)
		}
	}
	if n := e.woken.Load(); n != e.wokenAt {
		e.x.errorf("%s: woken %d times after Close had returned", e.name, n-e.wokenAt)
	}
}

func opText(op provider.Op) string {
	switch op {
	case provider.OpRecv:
		return "receive"
	case provider.OpSend:
		return "send"
	case provider.OpWrite:
		return "write"
	case provider.OpRead:
		return "read"
	case provider.OpDisconnect:
		return "disconnection"
	}
	return fmt.Sprintf("operation of kind %d", op)
}

func describe(c provider.Completion) string {
	s := fmt.Sprintf("completion of %s %#x: %v", opText(c.Op), c.Context, c.Status)
	if c.Op == provider.OpRecv {
		s += fmt.Sprintf(", %d bytes", c.Len)
	}
	return s
}
