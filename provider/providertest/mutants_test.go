package providertest_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/internal/faulty"
	"sansock/provider"
	"sansock/provider/providertest"
)

// check runs rules with time that passes only when nothing else can happen: waiting in vain costs nothing.
func check(t *testing.T, c providertest.Config, rules ...string) (found []providertest.Violation) {
	synctest.Test(t, func(*testing.T) { found = providertest.Check(c, rules...) })
	return found
}

// TestInnocent shows that the suite finds nothing wrong with the emulator behind the wrappers that the mutants use.
func TestInnocent(t *testing.T) {
	m := &mutant{conf: small}
	assert.Empty(t, check(t, m.config()))
}

// TestMutants shows that each mistake is found by the rules that are there to find it.
func TestMutants(t *testing.T) {
	for _, m := range slices.Concat(mutants, appendMutants) {
		t.Run(m.name, func(t *testing.T) {
			found := check(t, m.config(), m.rules...)
			for _, rule := range m.rules {
				i := slices.IndexFunc(found, func(v providertest.Violation) bool {
					return v.Rule == rule && strings.Contains(v.What, m.shows)
				})
				if assert.GreaterOrEqual(t, i, 0, "rule %s has not found it, in %v", rule, found) {
					t.Log(found[i])
				}
			}
		})
	}
}

// TestEveryRuleFinds shows that there is no rule that finds nothing.
func TestEveryRuleFinds(t *testing.T) {
	used := make(map[string]bool)
	for _, m := range slices.Concat(mutants, appendMutants) {
		for _, r := range m.rules {
			used[r] = true
		}
	}
	for _, r := range providertest.Rules() {
		assert.True(t, used[r.Name], "no mutant for %s (%s)", r.Name, r.Promise)
		delete(used, r.Name)
	}
	require.Empty(t, used, "rules that do not exist")
}

// small has limits that a rule can go beyond.
var small = emu.Config{MaxMessage: 3000, MaxInline: 300, MaxRDMA: 8000, MaxRecvs: 64, MaxSends: 8, MaxRDMAs: 4}

// mutate changes the memory of exposure x as its owner's emulator would have refused to.
func onAccess(accept func(e *faultyEnd, op provider.Op, r provider.RDMA) []byte) func(*faultyEnd) {
	return func(e *faultyEnd) {
		e.On.RDMA = func(op provider.Op, r provider.RDMA) error {
			if mem := accept(e, op, r); mem != nil {
				return e.force(op, r, mem)
			}
			return e.PassRDMA(op, r)
		}
	}
}

// needs is the right that op needs.
func needs(op provider.Op) provider.Rights {
	if op == provider.OpRead {
		return provider.RightRead
	}
	return provider.RightWrite
}

// inside is the memory of x that an access means, nil if it is out of bounds.
func inside(x *exposure, r provider.RDMA) []byte {
	if x == nil || r.Offset > uint64(len(x.Bytes)) || uint64(len(r.Local.Bytes)) > uint64(len(x.Bytes))-r.Offset {
		return nil
	}
	return x.Bytes[r.Offset:]
}

// failing makes Dial return another error.
func failing(as func(p *faultyProvider, err error) error) func(p *faultyProvider) {
	return func(p *faultyProvider) {
		p.On.Dial = func(ctx context.Context, local, remote netip.AddrPort) (provider.Endpoint, error) {
			ep, err := p.Provider.Dial(ctx, local, remote)
			if err != nil {
				err = as(p, err)
			}
			return ep, err
		}
	}
}

func withStatus(s provider.Status) error {
	return &provider.Error{Provider: "emu", Op: "dial", Status: s}
}

// onRequest sets the hooks of requests.
func onRequest(set func(r *faulty.Request)) func(p *faultyProvider) {
	return func(p *faultyProvider) { p.OnRequest = set }
}

// instead turns one status that posting returns into another.
func instead(from, to provider.Status) func(e *faultyEnd) {
	other := func(err error) error {
		if provider.StatusOf(err) == from {
			return to.Err()
		}
		return err
	}
	return func(e *faultyEnd) {
		e.On.PostRecv = func(r provider.Recv) error { return other(e.Endpoint.PostRecv(r)) }
		e.On.PostSend = func(s provider.Send) error { return other(e.Endpoint.PostSend(s)) }
		e.On.RDMA = func(op provider.Op, r provider.RDMA) error { return other(e.PassRDMA(op, r)) }
	}
}

// acceptLocal takes segments that the emulator finds unregistered, if fits says so.
func acceptLocal(fits func(e *faultyEnd, s provider.Segment) bool) func(e *faultyEnd) {
	return func(e *faultyEnd) {
		e.On.PostRecv = func(r provider.Recv) error {
			err := e.Endpoint.PostRecv(r)
			if err == provider.StatusLocal && fits(e, r.Buffer) {
				return nil
			}
			return err
		}
	}
}

// every calls do with every n-th send of an end, and posts the others.
func everySend(n int, do func(e *faultyEnd, s provider.Send) error) func(e *faultyEnd) {
	return func(e *faultyEnd) {
		var count atomic.Int64
		e.On.PostSend = func(s provider.Send) error {
			if count.Add(1)%int64(n) == 0 {
				return do(e, s)
			}
			return e.Endpoint.PostSend(s)
		}
	}
}

// swallow drops a message.
func swallow(e *faultyEnd, s provider.Send) error {
	if !s.IsInline() {
		e.Inject(provider.Completion{Context: s.Context, Op: provider.OpSend})
	}
	return nil
}

// lastWrite has the device finish the last write later than it should.
type lastWrite struct {
	mu   sync.Mutex
	data []byte
	to   []byte
}

func (l *lastWrite) note(x *exposure, r provider.RDMA) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if mem := inside(x, r); mem != nil {
		l.data, l.to = bytes.Clone(r.Local.Bytes), mem
	}
}

func (l *lastWrite) land() {
	l.mu.Lock()
	defer l.mu.Unlock()
	copy(l.to, l.data)
	l.to = nil
}

func (e *faultyEnd) exposedTo(r provider.RDMA) *exposure {
	return e.find(func(x *exposure) bool { return x.Descriptor == r.Remote && x.rights != 0 })
}

// deadEnd is an endpoint of which nothing is ever heard.
type deadEnd struct{ provider.Endpoint }

func (deadEnd) Attributes() provider.Attributes { return provider.Attributes{} }
func (deadEnd) LocalAddr() netip.AddrPort       { return netip.AddrPort{} }
func (deadEnd) RemoteAddr() netip.AddrPort      { return netip.AddrPort{} }
func (deadEnd) OnWake(func())                   {}
func (deadEnd) Arm(provider.Wake) bool          { return false }
func (deadEnd) Poll([]provider.Completion) int  { return 0 }
func (deadEnd) Close() error                    { return nil }

var sink atomic.Pointer[[]byte]

var mutants = []mutant{
	// The provider and its connections.
	{name: "name in capitals", rules: []string{"provider/name"}, provider: func(p *faultyProvider) {
		p.On.Name = func() string { return "EMU" }
	}},
	{name: "endpoint promises more", rules: []string{"provider/attributes"}, end: func(e *faultyEnd) {
		e.On.Attributes = func() provider.Attributes {
			a := e.Endpoint.Attributes()
			a.MaxSends *= 2
			return a
		}
	}},
	{name: "attributes change", rules: []string{"provider/attributes"}, end: func(e *faultyEnd) {
		e.On.Attributes = func() provider.Attributes {
			a := e.Endpoint.Attributes()
			if e.Closed() {
				a.MaxSends--
			}
			return a
		}
	}},
	{name: "prefix of somebody else", rules: []string{"provider/prefixes"}, provider: func(p *faultyProvider) {
		p.On.Prefixes = func() ([]netip.Prefix, error) { return []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}, nil }
	}},
	{name: "close forgets listeners", rules: []string{"provider/close"}, provider: func(p *faultyProvider) {
		p.On.Close = func() error { return nil }
	}},
	{name: "close ends connections", rules: []string{"provider/close"}, provider: func(p *faultyProvider) {
		p.On.Close = func() error {
			for _, e := range p.ends {
				e.Endpoint.Close()
			}
			return p.Provider.Close()
		}
	}},
	{name: "wrong remote address", rules: []string{"connect/addresses"}, end: func(e *faultyEnd) {
		e.On.RemoteAddr = func() netip.AddrPort {
			a := e.Endpoint.RemoteAddr()
			return netip.AddrPortFrom(a.Addr(), a.Port()^1)
		}
	}},
	{name: "local address ignored", rules: []string{"connect/local-address"}, provider: func(p *faultyProvider) {
		p.On.Dial = func(ctx context.Context, local, remote netip.AddrPort) (provider.Endpoint, error) {
			if local.IsValid() {
				local = netip.MustParseAddrPort("127.0.0.9:0")
			}
			return p.Provider.Dial(ctx, local, remote)
		}
	}},
	{name: "dialed address unknown", rules: []string{"connect/unspecified"}, provider: onRequest(func(r *faulty.Request) {
		r.On.LocalAddr = func() netip.AddrPort {
			return netip.AddrPortFrom(netip.IPv4Unspecified(), r.Request.LocalAddr().Port())
		}
	})},
	{name: "accepts by itself", rules: []string{"connect/accept-decides"}, provider: onRequest(func(r *faulty.Request) {
		ep, err := r.Request.Accept(context.Background())
		r.On.Accept = func(context.Context) (provider.Endpoint, error) { return ep, err }
	})},
	{name: "accept ignores its context", rules: []string{"connect/accept-context"},
		provider: onRequest(func(r *faulty.Request) {
			r.On.Accept = func(context.Context) (provider.Endpoint, error) { return r.Request.Accept(context.Background()) }
		})},
	{name: "accepts the dead", rules: []string{"connect/dialer-gone"}, provider: onRequest(func(r *faulty.Request) {
		r.On.Accept = func(ctx context.Context) (provider.Endpoint, error) {
			ep, err := r.Request.Accept(ctx)
			if err != nil {
				return deadEnd{}, nil
			}
			return ep, nil
		}
	})},
	{name: "rejection as no listener", rules: []string{"connect/reject", "connect/backlog"},
		provider: failing(func(_ *faultyProvider, err error) error {
			if provider.StatusOf(err) == provider.StatusRefused {
				return withStatus(provider.StatusNoListener)
			}
			return err
		})},
	{name: "reason lost", shows: "rejected with",
		rules: []string{"connect/reject"}, provider: onRequest(func(r *faulty.Request) {
			r.On.Reject = func([]byte) error { return r.Request.Reject(nil) }
		})},
	{name: "reason cut", shows: "rejected with",
		rules: []string{"connect/reject"}, provider: onRequest(func(r *faulty.Request) {
			r.On.Reject = func(reason []byte) error { return r.Request.Reject(reason[:min(len(reason), 32)]) }
		})},
	{name: "error of no type",
		rules: []string{"connect/reject"}, provider: failing(func(_ *faultyProvider, err error) error {
			return provider.StatusOf(err)
		})},
	{name: "backlog without end", shows: "beyond the backlog", rules: []string{"connect/backlog", "listen/close-rejects"},
		provider: func(p *faultyProvider) {
			p.On.Listen = func(local netip.AddrPort, _ int) (provider.Listener, error) { return p.Provider.Listen(local, 1000) }
		}},
	{name: "backlog too short", rules: []string{"connect/backlog"}, provider: func(p *faultyProvider) {
		p.On.Listen = func(local netip.AddrPort, _ int) (provider.Listener, error) { return p.Provider.Listen(local, 1) }
	}},
	{name: "no listener as refusal", rules: []string{"connect/no-listener"},
		provider: failing(func(_ *faultyProvider, err error) error {
			if provider.StatusOf(err) == provider.StatusNoListener {
				return withStatus(provider.StatusRefused)
			}
			return err
		})},
	{name: "context's error lost",
		rules: []string{"connect/context"}, provider: failing(func(_ *faultyProvider, err error) error {
			if errors.Is(err, context.Canceled) {
				return withStatus(provider.StatusTimeout)
			}
			return err
		})},
	{name: "context ignored", rules: []string{"connect/context"}, provider: func(p *faultyProvider) {
		p.On.Dial = func(ctx context.Context, local, remote netip.AddrPort) (provider.Endpoint, error) {
			ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
			defer cancel()
			go func() { // as long as the provider, so that the test comes to an end
				select {
				case <-p.closing:
					cancel()
				case <-ctx.Done():
				}
			}()
			return p.Provider.Dial(ctx, local, remote)
		}
	}},
	{name: "goroutine left by Dial", shows: "goroutines", rules: []string{"connect/nothing-left"},
		provider: failing(func(p *faultyProvider, err error) error {
			go func() { <-p.closing }()
			return err
		})},
	{name: "port taken as link failure", rules: []string{"listen/port-taken"}, provider: func(p *faultyProvider) {
		p.On.Listen = func(local netip.AddrPort, n int) (provider.Listener, error) {
			l, err := p.Provider.Listen(local, n)
			if err != nil {
				err = withStatus(provider.StatusLink)
			}
			return l, err
		}
	}},
	{name: "listens anywhere", rules: []string{"listen/not-ours"}, provider: func(p *faultyProvider) {
		p.On.Listen = func(local netip.AddrPort, n int) (provider.Listener, error) {
			l, err := p.Provider.Listen(local, n)
			if err != nil {
				l, err = p.Provider.Listen(netip.MustParseAddrPort("127.0.0.1:0"), n)
			}
			return l, err
		}
	}},
	{name: "accept ends with EOF",
		rules: []string{"listen/close-wakes", "provider/close"}, provider: func(p *faultyProvider) {
			p.OnListener = func(l *faulty.Listener) {
				l.On.Accept = func() (provider.Request, error) {
					r, err := l.Listener.Accept()
					if err != nil {
						err = io.EOF
					}
					return r, err
				}
			}
		}},
	{name: "closing listener drops requests", rules: []string{"listen/close-rejects"}, provider: func(p *faultyProvider) {
		var closed atomic.Bool
		failing(func(_ *faultyProvider, err error) error {
			if closed.Load() {
				return withStatus(provider.StatusTimeout)
			}
			return err
		})(p)
		p.OnListener = func(l *faulty.Listener) {
			l.On.Close = func() error {
				closed.Store(true)
				return l.Listener.Close()
			}
		}
	}},
	{name: "closing listener ends connections",
		rules: []string{"listen/close-spares"}, provider: func(p *faultyProvider) {
			p.OnListener = func(l *faulty.Listener) {
				l.On.Close = func() error {
					for _, e := range p.ends {
						e.Endpoint.Close()
					}
					return l.Listener.Close()
				}
			}
		}},
	{name: "one remote address for all", rules: []string{"listen/dialers"}, end: func(e *faultyEnd) {
		e.On.RemoteAddr = func() netip.AddrPort {
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.ends[0].Endpoint.RemoteAddr()
		}
	}},

	// Messages.
	{name: "length with padding", rules: []string{"message/content"}, end: func(e *faultyEnd) {
		e.On.See = func(c *provider.Completion) bool { c.Len = (c.Len + 7) &^ 7; return true }
	}},
	{name: "byte behind the message", rules: []string{"message/content"}, end: func(e *faultyEnd) {
		e.On.See = func(c *provider.Completion) bool {
			e.Mu.Lock()
			defer e.Mu.Unlock()
			if b := e.Recvs[c.Context].Bytes; c.Op == provider.OpRecv && c.Len < len(b) {
				b[c.Len] ^= 1
			}
			return true
		}
	}},
	{name: "duplicate completion", shows: "that had completed",
		rules: []string{"message/content", "message/order", "rdma/write"}, end: func(e *faultyEnd) {
			e.On.See = func(c *provider.Completion) bool {
				e.Mu.Lock()
				defer e.Mu.Unlock()
				if c.Op != provider.OpDisconnect {
					e.Extra = append(e.Extra, *c)
				}
				return true
			}
		}},
	{name: "inline completes", shows: "of an inline send that did not fail",
		rules: []string{"message/inline"}, end: func(e *faultyEnd) {
			e.On.PostSend = func(s provider.Send) error {
				err := e.Endpoint.PostSend(s)
				if err == nil && s.IsInline() {
					e.Inject(provider.Completion{Context: s.Context, Op: provider.OpSend})
				}
				return err
			}
		}},
	{name: "empty messages vanish", rules: []string{"message/empty"}, end: func(e *faultyEnd) {
		e.On.PostSend = func(s provider.Send) error {
			if len(s.Local.Bytes)+len(s.Inline[0])+len(s.Inline[1]) == 0 {
				return swallow(e, s)
			}
			return e.Endpoint.PostSend(s)
		}
	}},
	{name: "longest message refused", rules: []string{"message/largest"}, end: func(e *faultyEnd) {
		e.On.PostSend = func(s provider.Send) error {
			if len(s.Local.Bytes) >= e.Attributes().MaxMessage {
				return provider.StatusTooLong
			}
			return e.Endpoint.PostSend(s)
		}
	}},
	{name: "limits exceeded silently", conf: small,
		rules: []string{"message/too-long", "message/inline-too-long", "rdma/too-long"}, end: instead(provider.StatusTooLong,
			provider.StatusOK)},
	{name: "inline pieces kept", shows: "is wrong", rules: []string{"message/inline"}, end: func(e *faultyEnd) {
		var kept []provider.Send
		e.On.PostSend = func(s provider.Send) error {
			if s.IsInline() {
				kept = append(kept, s)
				return nil
			}
			return e.Endpoint.PostSend(s)
		}
		e.On.Poll = func(c []provider.Completion) int {
			for _, s := range kept {
				e.Endpoint.PostSend(s)
			}
			kept = nil
			return e.PassPoll(c)
		}
	}},
	{name: "second inline piece first", shows: "is wrong", rules: []string{"message/inline"}, end: func(e *faultyEnd) {
		e.On.PostSend = func(s provider.Send) error {
			s.Inline[0], s.Inline[1] = s.Inline[1], s.Inline[0]
			return e.Endpoint.PostSend(s)
		}
	}},
	{name: "two messages change places", rules: []string{"message/order", "message/many"}, end: func(e *faultyEnd) {
		var mu sync.Mutex
		var kept *provider.Send
		n := 0
		e.On.PostSend = func(s provider.Send) error {
			mu.Lock()
			defer mu.Unlock()
			if n++; n == 3 {
				s.Inline = [2][]byte{bytes.Clone(s.Inline[0]), bytes.Clone(s.Inline[1])}
				kept = &s
				return nil
			}
			err := e.Endpoint.PostSend(s)
			if kept != nil {
				e.Endpoint.PostSend(*kept)
				kept = nil
			}
			return err
		}
	}},
	{name: "completion before the memory is free", shows: "is wrong",
		rules: []string{"message/reuse"}, end: func(e *faultyEnd) {
			var mu sync.Mutex
			var kept []provider.Send
			early := make(map[uint64]bool)
			e.On.PostSend = func(s provider.Send) error {
				mu.Lock()
				defer mu.Unlock()
				if s.IsInline() {
					return e.Endpoint.PostSend(s)
				}
				kept = append(kept, s)
				early[s.Context] = true
				e.Inject(provider.Completion{Context: s.Context, Op: provider.OpSend})
				return nil
			}
			e.On.See = func(c *provider.Completion) bool { return !early[c.Context] }
			e.On.Arm = func(w provider.Wake) bool {
				mu.Lock()
				defer mu.Unlock()
				for _, s := range kept {
					e.Endpoint.PostSend(s)
				}
				kept = nil
				return e.Endpoint.Arm(w)
			}
		}},
	{name: "contexts of 32 bits", rules: []string{"message/context"}, end: func(e *faultyEnd) {
		e.On.See = func(c *provider.Completion) bool { c.Context = uint64(uint32(c.Context)); return true }
	}},
	{name: "long messages cut", shows: "for a receive of 40",
		rules: []string{"message/longer-than-receive"}, end: func(e *faultyEnd) {
			e.On.See = func(c *provider.Completion) bool {
				if c.Op == provider.OpRecv && c.Status == provider.StatusTooLong {
					c.Status = provider.StatusOK
				}
				return true
			}
		}},
	{name: "long messages written on", shows: "behind the receive has changed",
		rules: []string{"message/longer-than-receive"}, end: func(e *faultyEnd) {
			e.On.See = func(c *provider.Completion) bool {
				if c.Op == provider.OpRecv && c.Status == provider.StatusTooLong {
					x := e.find(func(x *exposure) bool { return x.owner == e && x.Handle == e.Recvs[c.Context].Handle })
					x.Bytes[:len(x.Bytes)+1][len(x.Bytes)] ^= 1
				}
				return true
			}
		}},
	{name: "first message dropped", shows: "waited", rules: []string{"message/first-held"}, end: func(e *faultyEnd) {
		e.On.PostSend = func(s provider.Send) error {
			if p := e.peer(); p != nil {
				p.Mu.Lock()
				none := p.posted == 0
				p.Mu.Unlock()
				if none {
					return swallow(e, s)
				}
			}
			return e.Endpoint.PostSend(s)
		}
	}},
	{name: "unposted message dropped", shows: "waited", rules: []string{"message/unposted"}, end: func(e *faultyEnd) {
		e.On.PostSend = func(s provider.Send) error {
			if p := e.peer(); p != nil {
				p.Mu.Lock()
				none := len(p.Recvs) == 0
				p.Mu.Unlock()
				if none {
					return swallow(e, s)
				}
			}
			return e.Endpoint.PostSend(s)
		}
	}},
	{name: "message sent twice", rules: []string{"message/concurrent", "message/many"},
		end: everySend(15, func(e *faultyEnd, s provider.Send) error {
			if s.IsInline() {
				e.Endpoint.PostSend(s)
			}
			return e.Endpoint.PostSend(s)
		})},
	{name: "message lost now and then",
		rules: []string{"message/concurrent", "message/many"}, end: everySend(70, swallow)},

	// Limits.
	{name: "more posted than allowed", shows: "succeeded", conf: small,
		rules: []string{"queue/recvs"}, end: func(e *faultyEnd) {
			e.On.PostRecv = func(r provider.Recv) error {
				if err := e.Endpoint.PostRecv(r); err != provider.StatusQueueFull {
					return err
				}
				return nil
			}
		}},
	{name: "full queue posts nevertheless", shows: "completion of receive", conf: small,
		rules: []string{"queue/recvs"}, end: func(e *faultyEnd) {
			e.On.PostRecv = func(r provider.Recv) error {
				err := e.Endpoint.PostRecv(r)
				if err == provider.StatusQueueFull {
					e.Inject(provider.Completion{Context: r.Context, Op: provider.OpRecv, Status: provider.StatusAborted})
				}
				return err
			}
		}},
	{name: "limits only on paper", conf: small, rules: []string{"queue/sends", "queue/rdmas"},
		provider: func(p *faultyProvider) {
			p.On.Attributes = func() provider.Attributes { return doubled(p.Provider.Attributes()) }
		},
		end: func(e *faultyEnd) {
			e.On.Attributes = func() provider.Attributes { return doubled(e.Endpoint.Attributes()) }
		}},
	{name: "inline sends count", conf: small, rules: []string{"queue/inline"}, end: func(e *faultyEnd) {
		n := 0
		e.On.PostSend = func(s provider.Send) error {
			if n++; !s.IsInline() && n > e.Attributes().MaxSends {
				return provider.StatusQueueFull
			}
			return e.Endpoint.PostSend(s)
		}
		e.On.Poll = func(c []provider.Completion) int { n = 0; return e.PassPoll(c) }
	}},

	// Local memory.
	{name: "unregistered memory", rules: []string{"local/unregistered"},
		end: acceptLocal(func(_ *faultyEnd, s provider.Segment) bool { return s.Handle == 0 })},
	{name: "handle for every endpoint", rules: []string{"local/other-endpoint"},
		end: acceptLocal(func(e *faultyEnd, s provider.Segment) bool {
			return e.find(func(x *exposure) bool { return x.Handle == s.Handle }) != nil
		})},
	{name: "segments not checked",
		rules: []string{"local/bounds"}, end: acceptLocal(func(e *faultyEnd, s provider.Segment) bool {
			return e.find(func(x *exposure) bool { return x.Handle == s.Handle && x.owner == e }) != nil
		})},
	{name: "old handles",
		rules: []string{"local/deregistered"}, end: acceptLocal(func(e *faultyEnd, s provider.Segment) bool {
			return e.find(func(x *exposure) bool { return x.Handle == s.Handle && x.owner == e && x.gone }) != nil
		})},
	{name: "RDMA from registered memory alone", rules: []string{"local/rdma"}, end: func(e *faultyEnd) {
		e.On.RDMA = func(op provider.Op, r provider.RDMA) error {
			if r.Local.Handle == 0 {
				return provider.StatusLocal
			}
			return e.PassRDMA(op, r)
		}
	}},
	{name: "RDMA from any memory", conf: emu.Config{LocalRegistration: true},
		rules: []string{"local/rdma", "local/unregistered", "local/other-endpoint", "local/bounds", "local/deregistered"},
		end: func(e *faultyEnd) {
			e.On.RDMA = func(op provider.Op, r provider.RDMA) error {
				if err := e.PassRDMA(op, r); err != provider.StatusLocal {
					return err
				}
				return nil
			}
		}},

	// RDMA.
	{name: "offset lost", rules: []string{"rdma/write", "rdma/read"}, end: func(e *faultyEnd) {
		e.On.RDMA = func(op provider.Op, r provider.RDMA) error { r.Offset = 0; return e.PassRDMA(op, r) }
	}},
	{name: "read of one byte less", rules: []string{"rdma/read"}, end: func(e *faultyEnd) {
		e.On.RDMA = func(op provider.Op, r provider.RDMA) error {
			if op == provider.OpRead {
				r.Local.Bytes = r.Local.Bytes[:len(r.Local.Bytes)-1]
			}
			return e.PassRDMA(op, r)
		}
	}},
	{name: "write visible after the message", shows: "a write before the message",
		rules: []string{"rdma/write-order"}, end: func(e *faultyEnd) {
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
	{name: "large transfers cut", shows: "a large write", conf: emu.Config{MaxRDMA: 2 << 20},
		rules: []string{"rdma/largest"}, end: func(e *faultyEnd) {
			e.On.RDMA = func(op provider.Op, r provider.RDMA) error {
				r.Local.Bytes = r.Local.Bytes[:min(len(r.Local.Bytes), 1<<20)]
				return e.PassRDMA(op, r)
			}
		}},
	{name: "reads without data, now and then", rules: []string{"rdma/both-ways"}, end: func(e *faultyEnd) {
		n := 0
		e.On.RDMA = func(op provider.Op, r provider.RDMA) error {
			if op == provider.OpRead {
				if n++; n%5 == 0 {
					e.Inject(provider.Completion{Context: r.Context, Op: op})
					return nil
				}
			}
			return e.PassRDMA(op, r)
		}
	}},
	{name: "writes without data, now and then", rules: []string{"rdma/both-ways"}, end: func(e *faultyEnd) {
		n := 0
		e.On.RDMA = func(op provider.Op, r provider.RDMA) error {
			if op == provider.OpWrite {
				if n++; n%2 == 0 {
					e.Inject(provider.Completion{Context: r.Context, Op: op})
					return nil
				}
			}
			return e.PassRDMA(op, r)
		}
	}},
	{name: "descriptor wears out", rules: []string{"rdma/repeated"}, end: func(e *faultyEnd) {
		n := 0
		e.On.RDMA = func(op provider.Op, r provider.RDMA) error {
			if n++; n > 2 {
				e.Inject(provider.Completion{Context: r.Context, Op: op, Status: provider.StatusAccess})
				return nil
			}
			return e.PassRDMA(op, r)
		}
	}},

	// Registrations.
	{name: "descriptor for all", rules: []string{"region/describes"}, end: func(e *faultyEnd) {
		e.On.Register = func(b []byte) (provider.Region, error) { return e.Endpoint.Expose(b, provider.RightWrite) }
	}},
	{name: "memory elsewhere", rules: []string{"region/describes"}, end: func(e *faultyEnd) {
		e.On.Register = func(b []byte) (provider.Region, error) { return e.Endpoint.Register(bytes.Clone(b)) }
	}},
	{name: "handle used again", rules: []string{"region/handles"}, end: func(e *faultyEnd) {
		inner := make(map[provider.Handle]provider.Handle)
		e.On.Register = func(b []byte) (provider.Region, error) {
			r, err := e.Endpoint.Register(b)
			outer := provider.Handle(1)
			for inner[outer] != 0 {
				outer++
			}
			inner[outer] = r.Handle
			r.Handle = outer
			return r, err
		}
		e.On.Deregister = func(h provider.Handle) error {
			if i := inner[h]; i != 0 {
				inner[h], h = 0, i
			}
			return e.Endpoint.Deregister(h)
		}
	}},
	{name: "allocated memory not zeroed", rules: []string{"region/allocate"}, end: func(e *faultyEnd) {
		e.On.Allocate = func(size int) (provider.Region, error) {
			r, err := e.Endpoint.Allocate(size)
			if err == nil {
				r.Bytes[size-1] = 1
			}
			return r, err
		}
	}},
	{name: "memory in use deregistered", rules: []string{"region/busy"}, end: func(e *faultyEnd) {
		e.On.Deregister = func(h provider.Handle) error {
			if err := e.Endpoint.Deregister(h); err != provider.StatusBusy {
				return err
			}
			return nil
		}
	}},
	{name: "unknown handle deregistered", rules: []string{"region/unknown"}, end: func(e *faultyEnd) {
		e.On.Deregister = func(h provider.Handle) error { e.Endpoint.Deregister(h); return nil }
	}},
	{name: "unknown rights", rules: []string{"region/rights"}, end: func(e *faultyEnd) {
		e.On.Expose = func(b []byte, rights provider.Rights) (provider.Region, error) {
			return e.Endpoint.Expose(b, rights&3|provider.RightWrite)
		}
	}},
	{name: "right to read where nobody can", conf: emu.Config{NoRDMARead: true}, rules: []string{"region/rights"},
		end: func(e *faultyEnd) {
			e.On.Expose = func(b []byte, rights provider.Rights) (provider.Region, error) {
				r, err := e.Endpoint.Expose(b, rights)
				if err != nil && rights <= 3 {
					return e.Endpoint.Expose(b, provider.RightWrite)
				}
				return r, err
			}
		}},

	// Protection.
	{name: "bounds ignored", shows: "behind the exposed memory has changed", rules: []string{"protect/bounds"},
		end: onAccess(func(e *faultyEnd, op provider.Op, r provider.RDMA) []byte {
			if x := e.exposedTo(r); x != nil && r.Offset <= uint64(len(x.Bytes)) {
				return x.Bytes[r.Offset:cap(x.Bytes)]
			}
			return nil
		})},
	{name: "offset and length overflow", shows: "has changed", rules: []string{"protect/bounds"},
		end: onAccess(func(e *faultyEnd, op provider.Op, r provider.RDMA) []byte {
			x := e.exposedTo(r)
			if x != nil && r.Offset+uint64(len(r.Local.Bytes)) <= uint64(len(x.Bytes)) {
				return x.Bytes
			}
			return nil
		})},
	{name: "offset of 32 bits", shows: "has changed", rules: []string{"protect/bounds"},
		end: onAccess(func(e *faultyEnd, op provider.Op, r provider.RDMA) []byte {
			r.Offset = uint64(uint32(r.Offset))
			return inside(e.exposedTo(r), r)
		})},
	{name: "rights ignored", shows: "has changed", rules: []string{"protect/rights"},
		end: onAccess(func(e *faultyEnd, op provider.Op, r provider.RDMA) []byte { return inside(e.exposedTo(r), r) })},
	{name: "refused read leaks", shows: "has read", rules: []string{"protect/rights"}, end: func(e *faultyEnd) {
		e.On.RDMA = func(op provider.Op, r provider.RDMA) error {
			if x := e.exposedTo(r); op == provider.OpRead && x != nil && x.rights&provider.RightRead == 0 {
				copy(r.Local.Bytes, x.Bytes)
				e.Inject(provider.Completion{Context: r.Context, Op: op, Status: provider.StatusAccess})
				return nil
			}
			return e.PassRDMA(op, r)
		}
	}},
	{name: "refused read succeeds", shows: "has succeeded", rules: []string{"protect/rights"}, end: func(e *faultyEnd) {
		e.On.See = func(c *provider.Completion) bool {
			if c.Op == provider.OpRead {
				c.Status = provider.StatusOK
			}
			return true
		}
	}},
	{name: "rights belong to the memory", shows: "has changed", rules: []string{"protect/two-registrations"},
		end: onAccess(func(e *faultyEnd, op provider.Op, r provider.RDMA) []byte {
			x := e.exposedTo(r)
			if x == nil {
				return nil
			}
			return inside(e.find(func(y *exposure) bool {
				return &y.Bytes[0] == &x.Bytes[0] && y.rights&needs(op) != 0
			}), r)
		})},
	{name: "rights in the descriptor", shows: "has changed", rules: []string{"protect/forged"},
		end: onAccess(func(e *faultyEnd, op provider.Op, r provider.RDMA) []byte {
			return inside(e.find(func(x *exposure) bool {
				return x.rights != 0 && x.Descriptor[23] != r.Remote[23] && bytes.Equal(x.Descriptor[:23], r.Remote[:23])
			}), r)
		})},
	{name: "zero descriptor means the first memory", shows: "has changed",
		rules: []string{"protect/forged", "protect/not-exposed"},
		end: onAccess(func(e *faultyEnd, op provider.Op, r provider.RDMA) []byte {
			if r.Remote != (provider.Descriptor{}) {
				return nil
			}
			p := e.peer()
			return inside(e.find(func(x *exposure) bool { return x.owner == p && len(x.Bytes) >= 4096 }), r)
		})},
	{name: "keys checked, but for all connections", shows: "memory exposed to another (4096 bytes) has changed",
		rules: []string{"protect/spliced", "protect/other-connection"},
		end: onAccess(func(e *faultyEnd, op provider.Op, r provider.RDMA) []byte {
			p := e.peer()
			return inside(e.find(func(x *exposure) bool {
				return x.owner != p && x.rights&needs(op) != 0 && bytes.Equal(x.Descriptor[:8], r.Remote[:8])
			}), r)
		})},
	{name: "key not checked", shows: "exposed to the intruder (4096 bytes) has changed",
		rules: []string{"protect/other-connection"},
		end: onAccess(func(e *faultyEnd, op provider.Op, r provider.RDMA) []byte {
			p := e.peer()
			return inside(e.find(func(x *exposure) bool {
				return x.owner == p && x.rights&needs(op) != 0 && bytes.Equal(x.Descriptor[8:], r.Remote[8:])
			}), r)
		})},
	{name: "own descriptor reaches own memory", shows: "intruder's exposed memory (4096 bytes) has changed",
		rules: []string{"protect/own-memory"},
		end: onAccess(func(e *faultyEnd, op provider.Op, r provider.RDMA) []byte {
			if x := e.exposedTo(r); x != nil && x.owner == e {
				return inside(x, r)
			}
			return nil
		})},
	{name: "handles are keys", shows: "has changed", rules: []string{"protect/not-exposed"},
		end: onAccess(func(e *faultyEnd, op provider.Op, r provider.RDMA) []byte {
			h := provider.Handle(binary.LittleEndian.Uint64(r.Remote[:]))
			return inside(e.find(func(x *exposure) bool { return x.Handle == h }), r)
		})},
	{name: "memory reachable after Deregister", shows: "has changed", rules: []string{"protect/deregistered"},
		end: onAccess(func(e *faultyEnd, op provider.Op, r provider.RDMA) []byte {
			if x := e.exposedTo(r); x != nil && x.gone {
				return inside(x, r)
			}
			return nil
		})},
	{name: "memory reachable after Close", shows: "has changed", rules: []string{"protect/closed"},
		end: onAccess(func(e *faultyEnd, op provider.Op, r provider.RDMA) []byte {
			if x := e.exposedTo(r); x != nil && x.owner.Closed() {
				return inside(x, r)
			}
			return nil
		})},
	{name: "write lands after Deregister", shows: "has changed",
		rules: []string{"protect/deregister-race"}, end: func(e *faultyEnd) {
			var late lastWrite
			e.On.RDMA = func(op provider.Op, r provider.RDMA) error {
				if x := e.exposedTo(r); op == provider.OpWrite && x != nil {
					late.note(x, r)
					p := x.owner
					p.On.PostRecv = func(r provider.Recv) error { late.land(); return p.Endpoint.PostRecv(r) }
				}
				return e.PassRDMA(op, r)
			}
		}},
	{name: "read gets what came after Deregister", shows: "has read",
		rules: []string{"protect/deregister-race"}, end: func(e *faultyEnd) {
			e.On.RDMA = func(op provider.Op, r provider.RDMA) error {
				if x := e.exposedTo(r); op == provider.OpRead && x != nil {
					p := x.owner
					p.On.PostRecv = func(rr provider.Recv) error { copy(r.Local.Bytes, x.Bytes); return p.Endpoint.PostRecv(rr) }
				}
				return e.PassRDMA(op, r)
			}
		}},
	{name: "write lands after Close", shows: "memory of a closed endpoint (262144 bytes) has changed",
		rules: []string{"protect/close-race"}, provider: func(p *faultyProvider) {
			p.On.Close = func() error {
				for _, x := range p.exposed {
					if x.rights != 0 && x.gone {
						x.Bytes[len(x.Bytes)/2] ^= 1
					}
				}
				return p.Provider.Close()
			}
		}},
	{name: "message lands after Close", shows: "receives of a closed endpoint",
		rules: []string{"protect/close-race"}, provider: func(p *faultyProvider) {
			p.On.Close = func() error {
				for _, x := range p.exposed {
					if x.rights == 0 && len(x.Bytes) > 64<<10 {
						x.Bytes[0] ^= 1
					}
				}
				return p.Provider.Close()
			}
		}},

	// Waking.
	{name: "wakes twice", shows: "once too often", rules: []string{"wake/once"}, end: func(e *faultyEnd) {
		e.On.Wake = func(wake func()) { wake(); wake() }
	}},
	{name: "stays armed", shows: "once too often", rules: []string{"wake/once"}, end: func(e *faultyEnd) {
		e.On.Wake = func(wake func()) { wake(); e.Endpoint.Arm(provider.WakeAny) }
	}},
	{name: "never ready", rules: []string{"wake/ready"}, end: func(e *faultyEnd) {
		e.On.Arm = func(w provider.Wake) bool { e.Endpoint.Arm(w); return false }
	}},
	{name: "always ready", rules: []string{"wake/ready", "wake/once"}, end: func(e *faultyEnd) {
		e.On.Arm = func(w provider.Wake) bool { e.Endpoint.Arm(w); return true }
	}},
	{name: "not armed when ready", rules: []string{"wake/ready"}, end: func(e *faultyEnd) {
		e.On.Arm = func(w provider.Wake) bool {
			ready := e.Endpoint.Arm(w)
			if ready {
				e.Endpoint.Arm(provider.WakeNone)
			}
			return ready
		}
	}},
	{name: "own sends do not wake", rules: []string{"wake/own"}, end: func(e *faultyEnd) {
		e.On.PostSend = func(s provider.Send) error {
			e.Muted.Store(true)
			defer e.Muted.Store(false)
			return e.Endpoint.PostSend(s)
		}
	}},
	{name: "wakes when not armed", rules: []string{"wake/none"}, end: func(e *faultyEnd) {
		e.On.Arm = func(w provider.Wake) bool {
			if w == provider.WakeNone {
				e.Endpoint.Arm(provider.WakeAny)
				return false
			}
			return e.Endpoint.Arm(w)
		}
	}},
	{name: "arming adds up", rules: []string{"wake/replace"}, end: func(e *faultyEnd) {
		most := provider.WakeNone
		e.On.Arm = func(w provider.Wake) bool { most = max(most, w); return e.Endpoint.Arm(most) }
	}},
	{name: "first arming stays", rules: []string{"wake/replace"}, end: func(e *faultyEnd) {
		armed := provider.WakeNone
		e.On.Arm = func(w provider.Wake) bool {
			if armed == provider.WakeNone {
				armed = w
			}
			return e.Endpoint.Arm(armed)
		}
		e.On.Wake = func(wake func()) { armed = provider.WakeNone; wake() }
	}},
	{name: "solicited forgotten", rules: []string{"wake/solicited", "wake/stress-solicited"}, end: func(e *faultyEnd) {
		e.On.PostSend = func(s provider.Send) error { s.Solicited = false; return e.Endpoint.PostSend(s) }
	}},
	{name: "wakes for unsolicited", rules: []string{"wake/unsolicited"}, end: func(e *faultyEnd) {
		e.On.PostSend = func(s provider.Send) error { s.Solicited = true; return e.Endpoint.PostSend(s) }
	}},
	{name: "failures do not wake", rules: []string{"wake/failure"}, end: func(e *faultyEnd) {
		e.On.Arm = func(w provider.Wake) bool {
			if w == provider.WakeSolicited {
				e.Endpoint.Arm(provider.WakeNone)
				return false
			}
			return e.Endpoint.Arm(w)
		}
	}},
	{name: "the end does not wake", rules: []string{"wake/disconnect", "close/wakes-peer"}, end: func(e *faultyEnd) {
		e.On.Close = func() error {
			if p := e.peer(); p != nil {
				p.Muted.Store(true)
			}
			return e.Endpoint.Close()
		}
	}},
	{name: "wakes after Close", rules: []string{"wake/after-close"}, end: func(e *faultyEnd) {
		e.On.Arm = func(w provider.Wake) bool {
			if e.Closed() {
				e.Wake()
			}
			return e.Endpoint.Arm(w)
		}
	}},
	{name: "wake-up lost now and then", rules: []string{"wake/stress", "wake/stress-solicited"}, end: func(e *faultyEnd) {
		var n atomic.Int64
		e.On.Wake = func(wake func()) {
			if n.Add(1)%20 != 0 {
				wake()
			}
		}
	}},

	// The end.
	{name: "completion lost on Close", shows: "has not completed",
		rules: []string{"close/aborts"}, end: func(e *faultyEnd) {
			lost := false
			e.On.See = func(c *provider.Completion) bool {
				if c.Status == provider.StatusAborted && !lost {
					lost = true
					return false
				}
				return true
			}
		}},
	{name: "completion after Close", shows: "after Close, when Poll had already",
		rules: []string{"close/aborts"}, end: func(e *faultyEnd) {
			var late []provider.Completion
			e.On.See = func(c *provider.Completion) bool {
				if c.Status == provider.StatusAborted && late == nil {
					late = append(late, *c)
					return false
				}
				return true
			}
			rest := 0
			e.On.Poll = func(c []provider.Completion) int {
				n := e.PassPoll(c)
				if n == 0 && e.Closed() {
					if rest++; rest == 2 {
						n = copy(c, late)
					}
				}
				return n
			}
		}},
	{name: "aborted as success", rules: []string{"close/aborts", "close/peer-sees"}, end: func(e *faultyEnd) {
		e.On.See = func(c *provider.Completion) bool {
			if c.Status == provider.StatusAborted {
				c.Status = provider.StatusOK
			}
			return true
		}
	}},
	{name: "end without a reason", shows: "no reason", rules: []string{"close/peer-sees", "close/delivers"}, end: func(e *faultyEnd) {
		e.On.See = func(c *provider.Completion) bool {
			if c.Op == provider.OpDisconnect {
				c.Status = provider.StatusOK
			}
			return true
		}
	}},
	{name: "end for another reason", shows: "the peer has closed", rules: []string{"close/peer-sees"}, end: func(e *faultyEnd) {
		e.On.See = func(c *provider.Completion) bool {
			if c.Op == provider.OpDisconnect {
				c.Status = provider.StatusLink
			}
			return true
		}
	}},
	{name: "end reported twice", shows: "after OpDisconnect",
		rules: []string{"close/peer-sees"}, end: func(e *faultyEnd) {
			e.On.See = func(c *provider.Completion) bool {
				if c.Op == provider.OpDisconnect {
					e.Extra = append(e.Extra, *c)
				}
				return true
			}
		}},
	{name: "end before the rest", shows: "OpDisconnect before the completion",
		rules: []string{"close/peer-sees", "close/delivers"}, end: func(e *faultyEnd) {
			e.On.Poll = func(c []provider.Completion) int {
				if len(c) == 0 {
					return 0
				}
				var all []provider.Completion
				for one := make([]provider.Completion, 1); e.PassPoll(one) == 1; {
					if one[0].Op == provider.OpDisconnect {
						all = slices.Insert(all, 0, one[0])
					} else {
						all = append(all, one[0])
					}
				}
				n := copy(c, all)
				e.Mu.Lock()
				defer e.Mu.Unlock()
				e.Extra = append(all[n:], e.Extra...)
				return n
			}
		}},
	{name: "messages lost on Close", rules: []string{"close/delivers"}, end: func(e *faultyEnd) {
		e.On.See = func(c *provider.Completion) bool {
			if p := e.peer(); p != nil && p.Closed() && c.Op == provider.OpRecv {
				c.Status = provider.StatusAborted
			}
			return true
		}
	}},
	{name: "closed as disconnected", rules: []string{"close/posting"},
		end: instead(provider.StatusClosed, provider.StatusDisconnected)},
	{name: "registers after Close", rules: []string{"close/posting"}, end: func(e *faultyEnd) {
		e.On.Register = func(b []byte) (provider.Region, error) {
			r, err := e.Endpoint.Register(b)
			if err != nil {
				r, err = provider.Region{Bytes: b, Handle: 77}, nil
			}
			return r, err
		}
	}},
	{name: "disconnected as aborted", rules: []string{"close/posting-disconnected"},
		end: instead(provider.StatusDisconnected, provider.StatusAborted)},
	{name: "posts for nobody", rules: []string{"close/posting-disconnected"},
		end: instead(provider.StatusDisconnected, provider.StatusOK)},
	{name: "second Close fails", rules: []string{"close/twice"}, end: func(e *faultyEnd) {
		e.On.Close = func() error {
			if e.Closed() {
				return provider.StatusClosed
			}
			return e.Endpoint.Close()
		}
	}},
	{name: "completions lost when both close", shows: "has not completed",
		rules: []string{"close/both"}, end: func(e *faultyEnd) {
			e.On.See = func(c *provider.Completion) bool {
				p := e.peer()
				return c.Op != provider.OpRecv || !e.Closed() || p == nil || !p.Closed()
			}
		}},
	{name: "posts while it closes", shows: "never completed",
		rules: []string{"close/concurrent"}, end: instead(provider.StatusClosed, provider.StatusOK)},
	{name: "Deregister fails after Close", rules: []string{"close/registrations"}, end: func(e *faultyEnd) {
		e.On.Deregister = func(h provider.Handle) error {
			if e.Closed() {
				return provider.StatusClosed
			}
			return e.Endpoint.Deregister(h)
		}
	}},
	{name: "allocated memory gone with Close", rules: []string{"close/registrations"}, end: func(e *faultyEnd) {
		e.On.Close = func() error {
			err := e.Endpoint.Close()
			for _, x := range e.exposed {
				if x.owner == e && x.rights == 0 {
					clear(x.Bytes)
				}
			}
			return err
		}
	}},

	// Extensions, neighbours, cost.
	{name: "spinner that takes completions", rules: []string{"extension/spinner"}, end: func(e *faultyEnd) {
		spinning(e, func() bool { return e.Endpoint.Poll(make([]provider.Completion, 1)) > 0 })
	}},
	{name: "spinner that arms", rules: []string{"extension/spinner"}, end: func(e *faultyEnd) {
		spinning(e, func() bool { return e.Endpoint.Arm(provider.WakeAny) })
	}},
	{name: "spinner that sees things", rules: []string{"extension/spinner"}, end: func(e *faultyEnd) {
		spinning(e, func() bool { return true })
	}},
	{name: "sleeper that is never woken", rules: []string{"extension/sleeper"}, end: func(e *faultyEnd) {
		sleeping(e, &sleeper{rouse: make(chan struct{}, 1)})
	}},
	{name: "sleeper that cannot be interrupted", rules: []string{"extension/sleeper"}, end: func(e *faultyEnd) {
		sleeping(e, &sleeper{})
	}},
	{name: "sleeper with one seat for ever", rules: []string{"extension/sleeper"}, end: func(e *faultyEnd) {
		sleeping(e, &sleeper{restless: true, seats: 1})
	}},
	{name: "unsupported extension without error",
		rules: []string{"extension/unknown", "extension/cache", "extension/spinner", "extension/sleeper"},
		end: func(e *faultyEnd) {
			e.On.Extension = func(id provider.GUID) (any, error) {
				ext, err := e.Endpoint.Extension(id)
				if err != nil {
					return nil, nil
				}
				return ext, nil
			}
		}},
	{name: "unsupported extension with another error", rules: []string{"extension/unknown"}, end: func(e *faultyEnd) {
		e.On.Extension = func(id provider.GUID) (any, error) {
			ext, err := e.Endpoint.Extension(id)
			if err != nil {
				return nil, provider.StatusLink
			}
			return ext, nil
		}
	}},
	{name: "read promised, not offered", conf: emu.Config{NoRDMARead: true}, rules: []string{"extension/rdma-read"},
		end: func(e *faultyEnd) {
			e.On.Attributes = func() provider.Attributes {
				a := e.Endpoint.Attributes()
				a.RDMARead = true
				return a
			}
		}},
	{name: "read offered, not promised", rules: []string{"extension/rdma-read"}, end: func(e *faultyEnd) {
		e.On.Attributes = func() provider.Attributes {
			a := e.Endpoint.Attributes()
			a.RDMARead = false
			return a
		}
	}},
	{name: "messages to a neighbour", rules: []string{"isolation/connections"},
		end: everySend(10, func(e *faultyEnd, s provider.Send) error {
			e.mu.Lock()
			other := e.ends[(e.number+2)%len(e.ends)]
			e.mu.Unlock()
			return other.Endpoint.PostSend(s)
		})},
	{name: "one failure ends all", rules: []string{"isolation/failure"}, end: func(e *faultyEnd) {
		e.On.RDMA = func(op provider.Op, r provider.RDMA) error {
			if r.Offset != 0 {
				e.mu.Lock()
				other := e.ends[0]
				e.mu.Unlock()
				other.Endpoint.Close()
			}
			return e.PassRDMA(op, r)
		}
	}},
	{name: "allocates", shows: "allocations", rules: []string{"cost/allocations"}, end: func(e *faultyEnd) {
		e.On.PostSend = func(s provider.Send) error {
			b := make([]byte, 64)
			sink.Store(&b)
			return e.Endpoint.PostSend(s)
		}
	}},
}

func doubled(a provider.Attributes) provider.Attributes {
	a.MaxSends *= 2
	a.MaxRDMAs *= 2
	return a
}

// spin is a Spinner.
type spin func() bool

func (s spin) Spin() bool { return s() }

// spinning gives e the extension.
func spinning(e *faultyEnd, s spin) {
	e.On.Extension = func(id provider.GUID) (any, error) {
		if id == provider.GUIDSpinner {
			return s, nil
		}
		return e.Endpoint.Extension(id)
	}
}

// sleeper is a Sleeper that sleeps until the endpoint is closed, until it is roused, if it can be, or not at all.
type sleeper struct {
	rouse    chan struct{}
	closed   chan struct{}
	restless bool
	seats    int // 0: enough
	taken    int
}

func (s *sleeper) Seat() bool {
	s.taken++
	return s.seats == 0 || s.taken <= s.seats
}

func (s *sleeper) Sleep(ready bool) {
	if ready || s.restless {
		return
	}
	select {
	case <-s.rouse:
	case <-s.closed:
	}
}

func (s *sleeper) Interrupt() {
	if s.rouse != nil {
		select {
		case s.rouse <- struct{}{}:
		default:
		}
	}
}

func sleeping(e *faultyEnd, s *sleeper) {
	s.closed = make(chan struct{})
	e.On.Close = sync.OnceValue(func() error {
		close(s.closed)
		return e.Endpoint.Close()
	})
	e.On.Extension = func(id provider.GUID) (any, error) {
		if id == provider.GUIDSleeper {
			return s, nil
		}
		return e.Endpoint.Extension(id)
	}
}
