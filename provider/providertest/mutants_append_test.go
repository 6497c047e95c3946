package providertest_test

import (
	"sync"

	"sansock/emu"
	"sansock/provider"
)

// ghost writes behind the open message that its end has sent last, whatever has become of that, and whatever is there.
type ghost struct {
	e    *faultyEnd
	mu   sync.Mutex // above those of the ends
	sent int        // messages
	open int        // the number of the one that was open
	n    int        // its length; -1: there is none
}

func haunt(e *faultyEnd) *ghost {
	g := &ghost{e: e, n: -1}
	e.On.PostSend = func(s provider.Send) error {
		g.mu.Lock()
		defer g.mu.Unlock()
		err := e.Endpoint.PostSend(s)
		if err == nil {
			if s.Open {
				g.open, g.n = g.sent, len(s.Local.Bytes)+len(s.Inline[0])+len(s.Inline[1])
			}
			g.sent++
		}
		return err
	}
	e.On.See = func(c *provider.Completion) bool {
		e.Mu.Lock()
		defer e.Mu.Unlock()
		c.Len += e.more[c.Context]
		return true
	}
	return g
}

// write writes, and reports whether the message has not been polled. In this case grow makes it longer.
func (g *ghost) write(b []byte, grow bool) bool {
	p := g.e.peer()
	g.mu.Lock()
	defer g.mu.Unlock()
	if p == nil || g.n < 0 {
		return false
	}
	p.Mu.Lock()
	defer p.Mu.Unlock()
	r := p.order[g.open]
	x := p.find(func(x *exposure) bool { return x.owner == p && x.Handle == r.Buffer.Handle })
	mem := x.Bytes[:cap(x.Bytes)]
	for &mem[0] != &r.Buffer.Bytes[0] {
		mem = mem[1:]
	}
	copy(mem[g.n+p.more[r.Context]:], b)
	_, waits := p.Recvs[r.Context]
	if grow && waits {
		p.more[r.Context] += len(b)
	}
	return waits
}

// scribble appends as it should, and where it cannot it writes all the same.
func (g *ghost) scribble(b []byte) bool {
	if g.e.append(b) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.n += len(b)
		return true
	}
	g.write(b, false)
	return false
}

// growing sets the hook.
func growing(grow func(e *faultyEnd, b []byte) bool) func(e *faultyEnd) {
	return func(e *faultyEnd) { e.On.Append = func(b []byte) bool { return grow(e, b) } }
}

var appendMutants = []mutant{
	{name: "appended bytes are lost", rules: []string{"append/content", "append/order", "append/stress"},
		end: growing(func(*faultyEnd, []byte) bool { return true })},
	{name: "appended bytes change places", rules: []string{"append/order"}, end: func(e *faultyEnd) {
		var kept []byte
		e.On.Append = func(b []byte) bool {
			if kept == nil {
				kept = append(kept, b...)
				return true
			}
			done := e.append(b) && e.append(kept)
			kept = nil
			return done
		}
	}},
	{name: "appended twice now and then", rules: []string{"append/stress"}, end: func(e *faultyEnd) {
		n := 0
		e.On.Append = func(b []byte) bool {
			if n++; n%50 == 0 {
				e.append(b)
			}
			return e.append(b)
		}
	}},
	{name: "always appended", shows: "Append adds to",
		rules: []string{"append/room", "append/open", "append/last", "append/taken", "append/closed"},
		end: growing(func(e *faultyEnd, b []byte) bool {
			e.append(b)
			return true
		})},
	{name: "every message is open", shows: "Append adds to", rules: []string{"append/open", "append/last"},
		end: func(e *faultyEnd) {
			e.On.PostSend = func(s provider.Send) error {
				s.Open = true
				return e.Endpoint.PostSend(s)
			}
		}},
	{name: "a message before the last grows", rules: []string{"append/last"}, end: func(e *faultyEnd) {
		g := haunt(e)
		e.On.Append = func(b []byte) bool { return g.write(b, true) }
	}},
	{name: "appended beyond the receive", shows: "behind the receive has changed", rules: []string{"append/room"},
		end: func(e *faultyEnd) {
			g := haunt(e)
			e.On.Append = g.scribble
		}},
	{name: "appended to what was taken", shows: "has changed", rules: []string{"append/taken", "append/closed"},
		end: func(e *faultyEnd) {
			g := haunt(e)
			e.On.Append = g.scribble
		}},
	{name: "write visible after an Append", shows: "a write before an Append", rules: []string{"append/write-order"},
		end: func(e *faultyEnd) {
			var late lastWrite
			e.On.RDMA = func(op provider.Op, r provider.RDMA) error {
				late.note(e.exposedTo(r), r)
				e.Inject(provider.Completion{Context: r.Context, Op: op})
				if p := e.peer(); p != nil {
					p.On.PostRecv = func(r provider.Recv) error { late.land(); return p.Endpoint.PostRecv(r) }
				}
				return nil
			}
		}},
	{name: "Append wakes", rules: []string{"append/no-wake", "append/sleep"}, end: growing(func(e *faultyEnd, b []byte) bool {
		done := e.append(b)
		if p := e.peer(); p != nil {
			p.Wake()
		}
		return done
	})},
	{name: "open messages do not wake", shows: "a wake-up was lost", rules: []string{"append/sleep"}, end: func(e *faultyEnd) {
		e.On.PostSend = func(s provider.Send) error {
			if p := e.peer(); p != nil && s.Open {
				p.Muted.Store(true)
				defer p.Muted.Store(false)
			}
			return e.Endpoint.PostSend(s)
		}
	}},
	{name: "never appended", rules: []string{"extension/appender", "append/content"},
		end: growing(func(*faultyEnd, []byte) bool { return false })},
	{name: "closed as if exited", shows: "though the peer has closed", rules: []string{"extension/appender"},
		end: func(e *faultyEnd) {
			e.On.See = func(c *provider.Completion) bool {
				if c.Op == provider.OpDisconnect {
					c.Status = provider.StatusExited
				}
				return true
			}
		}},
	{name: "no Appender without an error", conf: emu.Config{NoAppend: true}, rules: []string{"extension/appender"},
		end: func(e *faultyEnd) {
			e.On.Extension = func(id provider.GUID) (any, error) {
				if id == provider.GUIDAppender {
					return nil, nil
				}
				return e.Endpoint.Extension(id)
			}
		}},
	{name: "Append allocates", shows: "allocations", rules: []string{"cost/allocations"},
		end: growing(func(e *faultyEnd, b []byte) bool {
			c := make([]byte, 64)
			sink.Store(&c)
			return e.append(b)
		})},
}
