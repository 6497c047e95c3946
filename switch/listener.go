package sanswitch

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Listener takes connections over TCP and SANs at one address, or over other networks for net. All methods may be
// called from any goroutine.
type Listener struct {
	network string // in errors
	tcp     string // the network of net that has the addresses of this one
	addr    net.Addr
	ln      net.Listener  // nil on "san" networks
	sans    []sanListener // none: Accept is that of ln
	route   Route         // of connections over ln
	sw      *Switch

	// arrivals hands what comes over TCP to Accept. It is unbuffered: who has a connection waits with it, so that one
	// at most is taken from the kernel before it is asked for.
	arrivals chan arrival
	queue    *queue
	deadline *deadline
	serving  sync.WaitGroup // the loops that accept
	draining atomic.Bool    // Drain was called
	drained  atomic.Bool    // and nothing new arrives any more
	callers  callers
	tending  atomic.Bool // a goroutine advances what is being set up

	// ctx ends when the listener is closed, and with it what is being set up.
	ctx   context.Context
	close context.CancelFunc

	closed atomic.Bool
}

// callers are the calls of Accept under way.
type callers struct {
	asking  atomic.Int32  // all
	helping atomic.Int32  // those that advance what is being set up
	asked   chan struct{} // has a token after a call has begun
}

// arrival is what Accept returns.
type arrival struct {
	Result
	err  error
	done chan struct{} // closed by the call of Accept that returns err, when it does not count as one any more
}

// plainListener returns a Listener that is ln.
func plainListener(ln net.Listener, network string, r Route) *Listener {
	return &Listener{network: network, addr: ln.Addr(), ln: ln, route: r}
}

// newListener returns a Listener for ln, if it is not nil, and for one SAN listener at least. It
// has the addresses of the network tcp of net.
func (s *Switch) newListener(
	network, tcp string, ln net.Listener, addr net.Addr, sans []sanListener, r Route,
) *Listener {
	l := &Listener{network: network, tcp: tcp, addr: addr, ln: ln, sans: sans, route: r, sw: s}
	l.arrivals, l.deadline = make(chan arrival), newDeadline()
	l.callers.asked = make(chan struct{}, 1)
	l.queue = newQueue(s.waiting, s.halfOpen)
	l.ctx, l.close = context.WithCancel(context.Background())
	l.ctx.Done() // made now, so that whoever asks first does not take it into a bubble
	if ln != nil {
		l.serving.Go(l.serveTCP)
	}
	for _, san := range sans {
		l.serving.Go(func() { l.serveSAN(san) })
	}
	if ln == nil {
		go func() {
			// Without any SAN left, as after the switch is closed, Accept would wait for ever.
			l.serving.Wait()
			if !l.draining.Load() {
				l.shut()
			}
		}()
	}
	return l
}

// Accept waits for a connection over any path. Errors are those of net: after Close one that is net.ErrClosed, past the
// deadline one that is os.ErrDeadlineExceeded, and errors of the TCP listener, as they come, one for each call.
func (l *Listener) Accept() (Result, error) {
	if len(l.sans) == 0 {
		c, err := l.ln.Accept()
		if err != nil {
			return Result{}, err
		}
		return Result{Conn: c, Route: l.route}, nil
	}
	// What is set up in another bubble of testing/synctest than the listener's could not be used
	// elsewhere.
	helps := l.sw.Home()
	l.callers.asking.Add(1)
	if helps {
		l.callers.helping.Add(1)
	}
	select {
	case l.callers.asked <- struct{}{}:
	default:
	}
	a := l.accept(helps)
	if helps {
		l.callers.helping.Add(-1)
	}
	l.callers.asking.Add(-1)
	work, ready := l.queue.left()
	if ready {
		l.queue.signal() // it may have been this call that was told
	}
	if work && helps {
		l.rouse()
	}
	if a.done != nil {
		close(a.done)
	}
	return a.Result, a.err
}

// accept waits for what Accept returns, and helps with setting up, or leaves that to others.
func (l *Listener) accept(helps bool) arrival {
	for {
		at, changed := l.deadline.get()
		if l.ctx.Err() != nil {
			return arrival{err: l.opError("accept", net.ErrClosed)}
		}
		var timeout <-chan time.Time
		if !at.IsZero() {
			d := time.Until(at)
			if d <= 0 {
				return arrival{err: l.opError("accept", os.ErrDeadlineExceeded)}
			}
			timeout = time.After(d)
		}
		if helps {
			l.work()
		} else if work, _ := l.queue.left(); work && l.callers.helping.Load() > 0 {
			l.queue.signal() // that was meant for one that helps
		}
		s, wait := l.queue.next()
		if s != nil {
			l.shutIfDrained()
			if s.result.Session != nil {
				s.result.Session.Accepted()
			}
			return arrival{Result: s.result}
		}
		var grace <-chan time.Time
		if wait > 0 {
			grace = time.After(wait)
		}
		select {
		case a := <-l.arrivals:
			return a
		case <-l.queue.changed:
		case <-l.ctx.Done():
		case <-changed:
		case <-timeout:
		case <-grace:
		}
	}
}

// Close stops listening and wakes Accept. Connections that were not accepted yet are reset, on both paths; those
// that were are left alone.
func (l *Listener) Close() error {
	if len(l.sans) == 0 {
		return l.ln.Close()
	}
	if ok, err := l.shut(); ok {
		return err
	}
	return l.opError("close", net.ErrClosed)
}

// shut closes the listener, and reports false if it was closed before. It holds no lock: a provider that calls for another
// connection may be under one of those that it ends, and shut a drained listener.
func (l *Listener) shut() (bool, error) {
	if l.closed.Swap(true) {
		return false, nil
	}
	l.close()
	closeAll(l.sans)
	l.queue.close()
	if l.ln != nil {
		return true, l.ln.Close()
	}
	return true, nil
}

// shutIfDrained closes a listener that was drained once it is empty.
func (l *Listener) shutIfDrained() {
	if l.drained.Load() && l.queue.empty() {
		l.shut()
	}
}

// Addr returns the address that is listened on, a *net.TCPAddr except on other networks. It is shared by all calls: do not
// modify it.
func (l *Listener) Addr() net.Addr { return l.addr }

// SetDeadline bounds the calls of Accept that wait now and those to come. A zero t clears the bound.
func (l *Listener) SetDeadline(t time.Time) error {
	if len(l.sans) == 0 {
		if d, ok := l.ln.(interface{ SetDeadline(time.Time) error }); ok {
			return d.SetDeadline(t)
		}
		return errors.ErrUnsupported
	}
	if l.ctx.Err() != nil {
		return net.ErrClosed // bare, as net has it
	}
	l.deadline.set(t)
	return nil
}

func (l *Listener) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: l.network, Addr: l.addr, Err: err}
}
