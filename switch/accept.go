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
		for l.callers.asking.Load() == 0 {
			select {
			case <-l.callers.asked:
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

// stir has somebody advance a connection that is being set up: a call of Accept if there is one,
// as what comes of it goes there, and else a goroutine. As the slot is noted before helping is
// looked at here, and looked for after helping has gone down in Accept, one of the two sees to
// it.
func (l *Listener) stir(s *slot) {
	if l.queue.stir(s) {
		l.rouse()
	}
}

func (l *Listener) rouse() {
	if l.callers.helping.Load() > 0 {
		l.queue.signal()
	} else if l.tending.CompareAndSwap(false, true) {
		go l.tend()
	}
}

// tend advances what was stirred while nobody accepts.
func (l *Listener) tend() {
	for {
		l.work()
		l.tending.Store(false)
		if work, _ := l.queue.left(); !work || !l.tending.CompareAndSwap(false, true) {
			return
		}
	}
}

// work advances the connections that were stirred.
func (l *Listener) work() {
	for s := l.queue.work(); s != nil; s = l.queue.work() {
		l.advance(s)
	}
}

// advance goes on with setting up a connection, which the caller has made busy.
func (l *Listener) advance(s *slot) {
	for {
		c, err := s.opening.Advance()
		if c == nil && err == nil {
			switch l.queue.leave(s) {
			case restWait:
				return
			case restAgain:
				continue
			}
			s.opening.Drop()
			err = session.ErrTimeout
		}
		l.settle(s, Result{Session: c, Route: s.route}, err)
		return
	}
}

// settle ends the setting up of a connection.
func (l *Listener) settle(s *slot, r Result, err error) {
	// Errors concern nobody here: the peer knows, and may be back over TCP.
	l.queue.settle(s, r, err)
	l.shutIfDrained()
}

// expire ends connections that take too long to set up.
func (l *Listener) expire() {
	if l.queue.expire() {
		l.rouse()
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
	if n, ok := san.Listener.(provider.RequestNotifier); ok {
		n.OnRequest(func(req provider.Request) { l.take(req, san) })
	}
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
	if !hasFamily(l.tcp, req.LocalAddr().Addr()) {
		req.Reject(rejectFamily.bytes())
		return
	}
	if l.draining.Load() {
		req.Reject(rejectBusy.bytes())
		return
	}
	s := &slot{route: Route{Path: PathSAN, Provider: san.name, Reason: ReasonSAN}}
	early, ok := req.(provider.EarlyRequest)
	if ok {
		s.opening, s.busy = session.Open(session.Listener, over(l.sw.session, san.provider)), true
	}
	if why, ok := l.queue.open(s); !ok {
		if l.draining.Load() {
			why = rejectBusy
		}
		req.Reject(why.bytes())
		return
	}
	if ok {
		l.takeEarly(early, s)
		return
	}
	go func() {
		c, err := l.negotiate(req, san.provider)
		l.settle(s, Result{Session: c, Route: s.route}, err)
	}()
}

// takeEarly accepts a request at once, and goes on whenever the peer does. So a connection takes no goroutine to set up.
func (l *Listener) takeEarly(req provider.EarlyRequest, s *slot) {
	_, err := req.AcceptEarly(l.ctx, func(ep provider.Endpoint) error {
		return s.opening.Begin(ep, func() { l.stir(s) })
	})
	if err != nil {
		l.settle(s, Result{}, err)
		return
	}
	l.queue.watch(l.expire)
	l.advance(s)
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
