package sanswitch

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/provider"
	"sansock/session"
)

// A failure at any step of dial and accept ends in a connection over TCP that works, says why, and leaves
// nothing of the SAN behind.
func TestFallback(t *testing.T) {
	silent := func(context.Context, provider.Request) (provider.Endpoint, error) { return nil, provider.StatusLink }
	for _, c := range []struct {
		name      string
		fault     func(f *faulty)
		lead      time.Duration // 0: patient
		timeout   time.Duration // of negotiation
		why, peer Reason
		served    Reason // 0: ReasonPlainClient
	}{
		{name: "prefixes", why: ReasonProviderFailed, served: ReasonProviderFailed, fault: func(f *faulty) {
			f.On.Prefixes = func() ([]netip.Prefix, error) { return nil, provider.StatusLink }
		}},
		{name: "no prefixes", why: ReasonNoProvider, served: ReasonNoProvider, fault: func(f *faulty) {
			f.On.Prefixes = func() ([]netip.Prefix, error) { return nil, nil }
		}},
		{name: "listen", why: ReasonNoListener, served: ReasonMemory, fault: func(f *faulty) {
			f.listen = func(netip.AddrPort) error { return provider.StatusLimit }
		}},
		{name: "dial, link", why: ReasonLink, fault: failDial(provider.StatusLink)},
		{name: "dial, no memory", why: ReasonMemory, fault: failDial(provider.StatusNoMemory)},
		{name: "dial, timeout", why: ReasonTimeout, fault: failDial(provider.StatusTimeout)},
		{name: "dial, unsupported", why: ReasonUnsupported, fault: failDial(provider.StatusUnsupported)},
		{name: "dial, closed", why: ReasonProviderFailed, fault: failDial(provider.StatusClosed)},
		{name: "dial, rejected for TCP", why: ReasonPeerDeclined, peer: ReasonBusy, fault: func(f *faulty) {
			f.On.Dial = func(context.Context, netip.AddrPort, netip.AddrPort) (provider.Endpoint, error) {
				return nil, &provider.Error{Status: provider.StatusRefused, Reason: rejectBusy.bytes()}
			}
		}},
		{name: "dial, silence", why: ReasonRaceLost, lead: time.Millisecond, fault: func(f *faulty) {
			f.On.Dial = func(ctx context.Context, _, _ netip.AddrPort) (provider.Endpoint, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
		}},
		{name: "accept of requests", why: ReasonRaceLost, lead: time.Millisecond, fault: func(f *faulty) {
			f.acceptRequest = fail(provider.StatusLink)
		}},
		{name: "accept, silence", why: ReasonRaceLost, lead: time.Millisecond, fault: func(f *faulty) { f.accept = silent }},
		{name: "accept, then gone", why: ReasonDisconnected, fault: func(f *faulty) {
			f.accept = func(ctx context.Context, r provider.Request) (provider.Endpoint, error) {
				ep, err := r.Accept(ctx)
				if err == nil {
					ep.Close()
				}
				return nil, provider.StatusNoMemory
			}
		}},
		{name: "dialer's allocate", why: ReasonMemory, fault: func(f *faulty) {
			f.dialed.allocate = fail(provider.StatusNoMemory)
		}},
		{name: "dialer's allocate, limit", why: ReasonMemory, fault: func(f *faulty) {
			f.dialed.allocate = fail(provider.StatusLimit)
		}},
		{name: "dialer's allocate, link", why: ReasonLink, fault: func(f *faulty) {
			f.dialed.allocate = fail(provider.StatusLink)
		}},
		{name: "dialer's receive", why: ReasonMemory, fault: func(f *faulty) {
			f.dialed.postRecv = fail(provider.StatusQueueFull)
		}},
		{name: "dialer's receive, gone", why: ReasonDisconnected, fault: func(f *faulty) {
			f.dialed.postRecv = fail(provider.StatusDisconnected)
		}},
		{name: "dialer's send", why: ReasonDisconnected, fault: func(f *faulty) {
			f.dialed.postSend = fail(provider.StatusDisconnected)
		}},
		{name: "dialer's send, link", why: ReasonLink, fault: func(f *faulty) {
			f.dialed.postSend = fail(provider.StatusLink)
		}},
		{name: "listener's allocate", why: ReasonPeerDeclined, peer: ReasonMemory, fault: func(f *faulty) {
			f.accept = func(ctx context.Context, r provider.Request) (provider.Endpoint, error) { return r.Accept(ctx) }
			offered := make(chan struct{})
			f.dialed.sent = sync.OnceFunc(func() { close(offered) })
			f.served.allocate = func() error {
				<-offered // or else the dialer may find itself disconnected before it has asked
				return provider.StatusNoMemory
			}
		}},
		{name: "listener's receive", why: ReasonDisconnected, fault: func(f *faulty) {
			f.served.postRecv = fail(provider.StatusLocal)
		}},
		{name: "listener's send", why: ReasonDisconnected, fault: func(f *faulty) {
			f.served.postSend = fail(provider.StatusLink)
		}},
		{name: "negotiation, garbage", why: ReasonNegotiation, fault: answer([]byte("HTTP/1.0 400 Bad Request\r\n\r\n"))},
		{name: "negotiation, empty message", why: ReasonNegotiation, fault: answer([]byte{})},
		{name: "negotiation, silence", why: ReasonTimeout, timeout: time.Millisecond, fault: answer(nil)},
		{name: "negotiation, silence and TCP", why: ReasonRaceLost, lead: time.Millisecond, fault: answer(nil)},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFaulty(t, emu.Config{})
			c.fault(f)
			if c.lead == 0 {
				c.lead = patient
			}
			s := newSwitch(t, Config{HeadStart: c.lead, Session: session.Config{Timeout: c.timeout}}, f)
			l := listen(t, s, "tcp", "127.0.0.1:0")
			dialed := dial(t, s, "tcp", l.Addr().String())
			assertTCP(t, dialed, c.why)
			assert.Equal(t, c.peer.String(), dialed.Route.Peer.String())
			if c.why != ReasonRaceLost && c.why != ReasonNoProvider {
				assert.Error(t, dialed.Route.Err)
			}
			accepted := accept(t, l)
			if c.served == ReasonNone {
				c.served = ReasonPlainClient
			}
			assertTCP(t, accepted, c.served)
			echo(t, dialed, accepted)
			f.assertClean(t)
		})
	}
}

func failDial(s provider.Status) func(f *faulty) {
	return func(f *faulty) {
		f.On.Dial = func(context.Context, netip.AddrPort, netip.AddrPort) (provider.Endpoint, error) {
			return nil, &provider.Error{Provider: "emu", Op: "dial", Status: s}
		}
	}
}

// answer makes the peer's answer to a hello b, or nothing if b is nil. The peer's endpoint is closed when
// the dialer has gone.
func answer(b []byte) func(f *faulty) {
	return func(f *faulty) {
		f.accept = func(ctx context.Context, r provider.Request) (provider.Endpoint, error) {
			ep, err := r.Accept(ctx)
			if err != nil {
				return nil, err
			}
			gone := make(chan struct{}, 1)
			ep.OnWake(func() {
				select {
				case gone <- struct{}{}:
				default:
				}
			})
			if b != nil {
				err = ep.PostSend(provider.Send{Inline: [2][]byte{b, nil}, Solicited: true})
			}
			if err == nil && !ep.Arm(provider.WakeAny) {
				<-gone
			}
			ep.Close()
			return nil, provider.StatusDisconnected
		}
	}
}

// Bad requests cost the listener nothing: it goes on with both paths.
func TestListenerSurvivesBadDialers(t *testing.T) {
	f := newFaulty(t, emu.Config{})
	s := newSwitch(t, Config{HeadStart: patient, Session: session.Config{Timeout: 100 * time.Millisecond}}, f)
	l := listen(t, s, "tcp", "127.0.0.1:0")
	at := l.Addr().(interface{ AddrPort() netip.AddrPort }).AddrPort()
	for _, b := range [][]byte{{}, []byte("GET / HTTP/1.0\r\n\r\n"), make([]byte, 256), nil} {
		ep, err := f.Provider.Dial(t.Context(), netip.AddrPort{}, at)
		require.NoError(t, err)
		if b != nil {
			require.NoError(t, ep.PostSend(provider.Send{Inline: [2][]byte{b, nil}}))
		}
		var c [4]provider.Completion
		assert.Eventually(t, func() bool {
			for _, c := range c[:ep.Poll(c[:])] {
				if c.Op == provider.OpDisconnect {
					return true
				}
			}
			return false
		}, 10*time.Second, time.Millisecond, "ended by the listener")
		ep.Close()
	}
	dialed := dial(t, s, "tcp", l.Addr().String())
	assertSAN(t, dialed)
	accepted := accept(t, l)
	assertSAN(t, accepted)
	echo(t, dialed, accepted)
}

// A failure is remembered for the destination, and forgotten in time, whatever the SAN can do by then.
func TestFailureIsRemembered(t *testing.T) {
	f := newFaulty(t, emu.Config{})
	s := newSwitch(t, Config{HeadStart: patient}, f)
	s.negatives.first = s.negatives.ttl // however slow this machine is
	l, other := listen(t, s, "tcp", "127.0.0.1:0"), listen(t, s, "tcp", "127.0.0.1:0")
	failDial(provider.StatusLink)(f)
	assertTCP(t, dial(t, s, "tcp", l.Addr().String()), ReasonLink)
	f.On.Dial = nil
	for range 3 {
		r := dial(t, s, "tcp", l.Addr().String())
		assertTCP(t, r, ReasonCached)
		assert.ErrorIs(t, r.Route.Err, provider.StatusLink)
	}
	assert.Equal(t, 1, f.Uses().Dials)
	assertSAN(t, dial(t, s, "tcp", other.Addr().String()))

	s.negatives.ttl = 0
	clear(s.negatives.m)
	assertSAN(t, dial(t, s, "tcp", l.Addr().String()))
}

// A shortage of this host concerns the dial that meets with it, and no other.
func TestShortageIsNotRemembered(t *testing.T) {
	for _, status := range []provider.Status{provider.StatusLimit, provider.StatusNoMemory, provider.StatusQueueFull} {
		f := newFaulty(t, emu.Config{})
		s := newSwitch(t, Config{HeadStart: patient}, f)
		l := listen(t, s, "tcp", "127.0.0.1:0")
		failDial(status)(f)
		assertTCP(t, dial(t, s, "tcp", l.Addr().String()), ReasonMemory)
		f.On.Dial = nil
		assertSAN(t, dial(t, s, "tcp", l.Addr().String()))
	}
}

// A SAN that is slower than TCP again and again does not cost every dial its head start.
func TestLostRaceIsRemembered(t *testing.T) {
	f := newFaulty(t, emu.Config{})
	s := newSwitch(t, Config{HeadStart: time.Millisecond}, f)
	s.negatives.first = s.negatives.ttl // however slow this machine is
	l := listen(t, s, "tcp", "127.0.0.1:0")
	f.On.Dial = func(ctx context.Context, _, _ netip.AddrPort) (provider.Endpoint, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for range lateLimit {
		assertTCP(t, dial(t, s, "tcp", l.Addr().String()), ReasonRaceLost)
	}
	r := dial(t, s, "tcp", l.Addr().String())
	assertTCP(t, r, ReasonCached)
	assert.Equal(t, errLate, r.Route.Err)
	assert.Equal(t, lateLimit, f.Uses().Dials)
}

// Nobody is kept off the SAN by having asked before the server was there.
func TestNoListenerIsNotRemembered(t *testing.T) {
	f := newFaulty(t, emu.Config{})
	client, server := newSwitch(t, Config{HeadStart: patient}, f), newSwitch(t, Config{}, f)
	plain := listen(t, newSwitch(t, Config{}), "tcp", "127.0.0.1:0")
	address := plain.Addr().String()
	for range 3 {
		assertTCP(t, dial(t, client, "tcp", address), ReasonNoListener)
		accept(t, plain)
	}
	plain.Close()
	listen(t, server, "tcp", address)
	assertSAN(t, dial(t, client, "tcp", address))
}
