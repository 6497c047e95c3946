//go:build ofi && cgo && linux

package ofi

import (
	"sync"
	"time"

	"sansock/provider"
)

// eventQueue is an event queue of the library's with the goroutine that reads it.
type eventQueue struct {
	c       *cEventQueue
	sleeper sleeper
	take    func(event) // called with mu held: must not block
	mu      *sync.Mutex
	quit    bool // under mu
	failed  int  // times in a row that reading failed
	over    chan struct{}
}

func startEventQueue(f *cFabric, mu *sync.Mutex, take func(event)) (*eventQueue, error) {
	c, err := openEventQueue(f)
	if err != nil {
		return nil, err
	}
	q := &eventQueue{c: c, take: take, mu: mu, over: make(chan struct{})}
	if err := q.sleeper.open(int(c.fd), "libfabric events"); err != nil {
		closeEventQueue(c)
		return nil, err
	}
	go q.run()
	return q, nil
}

func (q *eventQueue) run() {
	defer close(q.over)
	look := func(uintptr) bool { return q.look() }
	for {
		q.mu.Lock()
		quit := q.quit
		q.mu.Unlock()
		if quit {
			return
		}
		var nap time.Duration
		if q.failed > 0 {
			nap = min(time.Duration(q.failed)*time.Millisecond, time.Second)
			q.sleeper.sleep(nap, func(uintptr) bool { return false })
		}
		q.sleeper.sleep(0, look)
	}
}

// look takes an event, if there is one, and reports false if the goroutine may sleep until there is.
func (q *eventQueue) look() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.quit {
		return true
	}
	e, some, sleep, err := nextEvent(q.c)
	switch {
	case err != nil, !some && !sleep:
		q.failed++
		return true
	case sleep:
		q.failed = 0
		return false
	}
	q.failed = 0
	q.take(e)
	return true
}

// stop ends the goroutine. The queue itself stays open until close.
func (q *eventQueue) stop() {
	q.mu.Lock()
	q.quit = true
	q.mu.Unlock()
	q.sleeper.kick()
	<-q.over
	q.sleeper.close()
}

func (q *eventQueue) close() { closeEventQueue(q.c) }

// fabric is an opened fabric with the event queue of all its endpoints. It lives as long as something of it is in use.
type fabric struct {
	c     *cFabric
	queue *eventQueue

	// mu is held while an event is read and handed over, and while eps changes. The library drops the events of an
	// endpoint that is closed, so with this none is taken for one of another which has got the same memory. Endpoints'
	// mutexes come after it.
	mu   sync.Mutex
	eps  map[uintptr]*endpoint
	refs int
}

func newFabric(i *info) (*fabric, error) {
	c, err := openFabric(i)
	if err != nil {
		return nil, err
	}
	f := &fabric{c: c, eps: make(map[uintptr]*endpoint), refs: 1}
	if f.queue, err = startEventQueue(c, &f.mu, f.take); err != nil {
		closeFabric(c)
		return nil, err
	}
	return f, nil
}

// take hands an event to its endpoint.
func (f *fabric) take(ev event) {
	if ev.request != nil {
		freeInfo(ev.request) // there is no listener here
	}
	if e := f.eps[ev.fid]; e != nil {
		e.managed(ev)
	}
}

func (f *fabric) attach(e *endpoint) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.eps[e.fid] = e
}

// with calls the library for e, unless e has ended.
func (f *fabric) with(e *endpoint, call func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.eps[e.fid] != e {
		return provider.StatusDisconnected
	}
	return call()
}

// detach closes e's endpoint of the fabric.
func (f *fabric) detach(e *endpoint) {
	f.mu.Lock()
	delete(f.eps, e.fid)
	f.mu.Unlock()
	e.c.shutdown()
	e.c.close()
}

func (f *fabric) acquire() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refs++
}

func (f *fabric) release() {
	f.mu.Lock()
	f.refs--
	last := f.refs == 0
	f.mu.Unlock()
	if last {
		f.queue.stop()
		f.queue.close()
		closeFabric(f.c)
	}
}
