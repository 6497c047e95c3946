//go:build linux

package shm

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/provider"
)

// congested returns nodes with a connection, whose dialing side has more packets for the other than a dial begins with. That
// one takes none before goOn is called.
func congested(t testing.TB) (from *Node, dial func(context.Context) (provider.Endpoint, error), here, there *endpoint, goOn func()) {
	accepted := make(chan provider.Endpoint, 3)
	from, at := bindTo(t, func(r *Request) error {
		e, err := r.Accept(context.Background())
		if err == nil {
			t.Cleanup(func() { e.Close() })
			accepted <- e
		}
		return err
	})
	dial = func(ctx context.Context) (provider.Endpoint, error) { return from.Dial(ctx, at, at) }
	e, err := from.Dial(context.Background(), loopback, at)
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	here, there = e.(*endpoint), (<-accepted).(*endpoint)
	there.l.rx.Lock()
	stands := true
	goOn = func() {
		if stands {
			there.l.rx.Unlock()
			stands = false
		}
	}
	t.Cleanup(goOn)
	for here.l.backlog() == nil {
		here.l.sendFin(maxConns-1, provider.StatusOK) // which the other side has no connection for, and does not mind
	}
	return from, dial, here, there, goOn
}

// waits reports whether a dial waits for the backlog.
func waits(l *link) func() bool {
	return func() bool {
		l.tx.Lock()
		defer l.tx.Unlock()
		return l.short != nil
	}
}

// A dial waits while the peer is busy with what many others have sent.
func TestDialWaitsForBacklog(t *testing.T) {
	_, dial, here, _, goOn := congested(t)
	done := make(chan error)
	go func() {
		e, err := dial(context.Background())
		if err == nil {
			e.Close()
		}
		done <- err
	}()
	require.Eventually(t, waits(here.l), 10*time.Second, time.Millisecond)
	goOn()
	require.NoError(t, <-done)
}

// It waits no longer than it may, and not for what has ended.
func TestDialGivesBacklogUp(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(cancel func(), n *Node, l *link)
		want provider.Status
	}{
		"canceled": {func(cancel func(), _ *Node, _ *link) { cancel() }, provider.StatusAborted},
		"closed":   {func(_ func(), n *Node, _ *link) { n.Close() }, provider.StatusClosed},
		"lost":     {func(_ func(), _ *Node, l *link) { l.abort() }, provider.StatusOK}, // and made anew
	} {
		t.Run(name, func(t *testing.T) {
			from, dial, here, _, _ := congested(t)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			done := make(chan error)
			go func() {
				e, err := dial(ctx)
				if err == nil {
					e.Close()
				}
				done <- err
			}()
			require.Eventually(t, waits(here.l), 10*time.Second, time.Millisecond)
			c.end(cancel, from, here.l)
			require.Equal(t, c.want, provider.StatusOf(<-done))
		})
	}
}

// Memory is announced to a peer that has many packets before it.
func TestMemoryInSpiteOfBacklog(t *testing.T) {
	_, _, here, there, goOn := congested(t)
	r, err := here.Allocate(ownSegment)
	require.NoError(t, err)
	require.NoError(t, here.PostRecv(provider.Recv{Buffer: r.Segment(0, ownSegment)}))
	goOn()
	require.NoError(t, say(there, "hello"))
	require.Equal(t, "hello", hears(t, here, r))
}

// Dials that begin together do not each ask for the process that listens there: it has few handshakes at a time, and the
// oldest, which all would wait for, makes room for the next.
func TestDialsAskTogether(t *testing.T) {
	n := Open(Config{Space: space(t)})
	defer n.Close()
	at := freeAddr(t)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: n.name(at)})
	require.NoError(t, err)
	const dials = 10
	asked, asks := make(chan struct{}), 0
	go func() {
		defer close(asked)
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			defer c.Close()
			if asks++; asks == 1 {
				assert.Eventually(t, func() bool {
					n.mu.Lock()
					defer n.mu.Unlock()
					return len(n.flows[side(true)]) == dials
				}, 10*time.Second, time.Millisecond)
			}
			greetWith(c, greeting{min: version, max: version, refusal: refusedClosed})
		}
	}()
	var wg sync.WaitGroup
	for range dials {
		wg.Go(func() {
			_, err := n.Dial(context.Background(), loopback, at)
			assert.Equal(t, provider.StatusNoListener, provider.StatusOf(err))
		})
	}
	wg.Wait()
	l.Close()
	<-asked
	require.Less(t, asks, dials)
}

// greetWith sends a greeting as a process that listens does.
func greetWith(c *net.UnixConn, g greeting) error {
	_, _, err := c.WriteMsgUnix(g.append(nil), signed(), nil)
	return err
}

// Who asks for others, and gives up, leaves that to one of them.
func TestAskerGivesUp(t *testing.T) {
	n := Open(Config{Space: space(t)})
	defer n.Close()
	at := freeAddr(t)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: n.name(at)})
	require.NoError(t, err)
	defer l.Close()
	dial := func(ctx context.Context) <-chan error {
		done := make(chan error, 1)
		go func() {
			_, err := n.Dial(ctx, loopback, at)
			done <- err
		}()
		return done
	}
	ctx, cancel := context.WithCancel(context.Background())
	first := dial(ctx)
	c, err := l.AcceptUnix()
	require.NoError(t, err)
	defer c.Close()
	second := dial(context.Background())
	cancel()
	require.Equal(t, provider.StatusAborted, provider.StatusOf(<-first))
	c, err = l.AcceptUnix()
	require.NoError(t, err)
	defer c.Close()
	err = greetWith(c, greeting{min: version, max: version, refusal: refusedClosed})
	require.NoError(t, err)
	require.Equal(t, provider.StatusNoListener, provider.StatusOf(<-second))
}
