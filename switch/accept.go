package sanswitch

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"sansock/provider"
	"sansock/session"
)

// serveTCP hands over connections of the TCP listener, and its errors: there is one call of Accept for every
// error, so that nothing spins when descriptors have run out.
func (l *Listener) serveTCP() {
	for {
		c, err := l.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		a := arrival{Result{Conn: c, Route: l.route}, err}
		if err != nil {
			a.Result = Result{}
		}
		if !l.hand(a) {
			return
		}
	}
}

// hand gives a to Accept. It reports false if the listener is closed instead, and ends the connection then.
func (l *Listener) hand(a arrival) bool {
	select {
	case l.arrivals <- a:
		return true
	case <-l.ctx.Done():
		if a.err == nil {
			a.abort()
		}
		return false
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
			l.take(req, san.name)
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
func (l *Listener) take(req provider.Request, name string) {
	if !hasFamily(l.tcp(), req.LocalAddr().Addr()) {
		req.Reject(rejectFamily.bytes())
		return
	}
	if why, ok := l.pending.open(); !ok {
		req.Reject(why.bytes())
		return
	}
	go l.setUp(req, name)
}

// tcp is the network of net that has the addresses of the listener's.
func (l *Listener) tcp() string {
	tcp, _ := tcpNetwork(l.network)
	return tcp
}

// setUp makes a session for the request and hands it to Accept. Its errors concern nobody here: the peer
// knows, and may be back over TCP.
func (l *Listener) setUp(req provider.Request, name string) {
	s, err := l.negotiate(req)
	l.pending.opened(err == nil)
	if err != nil {
		return
	}
	l.hand(arrival{Result: Result{Session: s, Route: Route{Path: PathSAN, Provider: name, Reason: ReasonSAN}}})
	l.pending.accepted()
}

func (l *Listener) negotiate(req provider.Request) (*session.Conn, error) {
	ctx, cancel := context.WithTimeout(l.ctx, acceptTimeout)
	ep, err := req.Accept(ctx)
	cancel()
	if err != nil {
		return nil, err
	}
	return session.Negotiate(l.ctx, ep, session.Listener, l.sw.session)
}

// pending counts the connections of a listener that came over SANs and were not accepted yet.
type pending struct {
	maxWaiting, maxHalfOpen int

	mu                sync.Mutex
	waiting, halfOpen int
}

// open counts a connection that is to be set up. If there are too many it reports false, and how to reject it: a full
// backlog is final, as with TCP. Connections that are being set up would not keep TCP from serving the peer.
func (p *pending) open() (rejection, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting >= p.maxWaiting {
		return rejectFinal, false
	}
	if p.halfOpen >= p.maxHalfOpen || p.waiting+p.halfOpen >= p.maxWaiting {
		return rejectBusy, false
	}
	p.halfOpen++
	return 0, true
}

// opened ends the setting up of a connection, which waits for Accept from then on if ok.
func (p *pending) opened(ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.halfOpen--
	if ok {
		p.waiting++
	}
}

// accepted ends the waiting of a connection.
func (p *pending) accepted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting--
}
