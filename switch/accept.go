package sanswitch

import (
	"context"
	"errors"
	"net"
	"time"

	"sansock/provider"
	"sansock/session"
)

// serveTCP hands over connections of the TCP listener, and its errors. After an error it goes on when Accept is called again:
// nothing spins when descriptors have run out, and that they have is not told when there are some again.
func (l *Listener) serveTCP() {
	for {
		c, err := l.ln.Accept()
		if errors.Is(err, net.ErrClosed) || err != nil && l.draining.Load() {
			return
		}
		if err == nil {
			a := arrival{Result: Result{Conn: c, Route: l.route}}
			if !l.hand(a) {
				a.abort()
				return
			}
			continue
		}
		a := arrival{err: err, done: make(chan struct{})}
		if !l.hand(a) {
			return
		}
		<-a.done
		for l.asking.Load() == 0 {
			select {
			case <-l.asked:
			case <-l.ctx.Done():
				return
			}
		}
	}
}

// hand gives a to Accept, and reports false if the listener is closed instead.
func (l *Listener) hand(a arrival) bool {
	select {
	case l.arrivals <- a:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// handQueue hands over the connections that were set up over SANs.
func (l *Listener) handQueue() {
	defer l.queue.close()
	for l.ctx.Err() == nil {
		s, wait := l.queue.next()
		if s != nil {
			if l.hand(arrival{Result: s.result}) {
				l.queue.remove(s)
			}
			continue
		}
		if l.drained.Load() && l.queue.empty() {
			l.shut()
			return
		}
		var timer <-chan time.Time
		if wait > 0 {
			timer = time.After(wait)
		}
		select {
		case <-l.queue.changed:
		case <-timer:
		case <-l.ctx.Done():
		}
	}
}

// A SAN listener that fails is tried again after a pause from minPause to maxPause, and is given up after
// maxFailures in a row.
const (
	minPause    = 5 * time.Millisecond
	maxPause    = time.Second
	maxFailures = 10
)

// serveSAN takes the requests of a SAN listener until it ends.
func (l *Listener) serveSAN(san sanListener) {
	defer san.Close()
	for failures := 0; ; {
		req, err := san.Accept()
		if err == nil {
			failures = 0
			l.take(req, san)
			continue
		}
		if failures++; errors.Is(err, net.ErrClosed) || failures == maxFailures {
			return
		}
		select {
		case <-l.ctx.Done():
			return
		case <-time.After(min(minPause<<(failures-1), maxPause)):
		}
	}
}

// take starts to set up a session for the request, or rejects it.
func (l *Listener) take(req provider.Request, san sanListener) {
	if !hasFamily(l.tcp(), req.LocalAddr().Addr()) {
		req.Reject(rejectFamily.bytes())
		return
	}
	if l.draining.Load() {
		req.Reject(rejectBusy.bytes())
		return
	}
	slot, why := l.queue.open()
	if slot == nil {
		req.Reject(why.bytes())
		return
	}
	// Errors concern nobody here: the peer knows, and may be back over TCP.
	go func() {
		s, err := l.negotiate(req, san.provider)
		l.queue.settle(slot, Result{Session: s, Route: Route{Path: PathSAN, Provider: san.name, Reason: ReasonSAN}}, err)
	}()
}

// tcp is the network of net that has the addresses of the listener's.
func (l *Listener) tcp() string {
	tcp, _ := tcpNetwork(l.network)
	return tcp
}

func (l *Listener) negotiate(req provider.Request, p provider.Provider) (*session.Conn, error) {
	ctx, cancel := context.WithTimeout(l.ctx, acceptTimeout)
	ep, err := req.Accept(ctx)
	cancel()
	if err != nil {
		return nil, err
	}
	return session.Negotiate(l.ctx, ep, session.Listener, over(l.sw.session, p))
}
