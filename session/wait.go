package session

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"sansock/internal/alarm"
	"sansock/provider"
)

// How a session waits. Everything in this file keeps one promise: who has something to do is awake, or will be woken.
//
//   - A waiter parks, and only then looks whether there is something to do. Who makes something to do stores it first,
//     and then calls wake. One of the two notices.
//   - The provider's wake function wakes whoever is parked. Where nobody is, it notes that in Conn.missed, before it
//     tries Conn.mu. Who holds mu looks at missed after releasing it. One of the two notices.
//   - Who releases mu has armed the endpoint for all that are parked: the last to arm decides, and it sees them, as they
//     park with mu held. On the fast path the arming from before is still in force.
//   - Who polls may find what others wait for, and signals them before it releases mu.

// waiter lets one goroutine sleep until another wakes it:
//
//	w.park()
//	if there is something to do { w.unpark() } else { w.wait() }
//
// A token is in ch only between a wake that found the waiter parked and the wait or unpark that takes it, so none is
// ever left over for a later sleep. Between park and wait it may take a place of the provider's, to sleep there instead.
type waiter struct {
	state   atomic.Uint32
	ch      chan struct{}                    // capacity 1
	sleeper atomic.Pointer[provider.Sleeper] // nil: the provider has none
	place   atomic.Pointer[provider.Sleeper] // where it sleeps: sleeper changes with a hand-over
}

const (
	awake    = iota
	parked   // wake puts a token into ch
	sleeping // wake interrupts the provider's Sleep
)

func (w *waiter) park() { w.state.Store(parked) }

// parked reports whether somebody sleeps, or is about to.
func (w *waiter) parked() bool { return w.state.Load() != awake }

func (w *waiter) unpark() {
	if !w.state.CompareAndSwap(parked, awake) {
		<-w.ch
	}
}

func (w *waiter) wait() { <-w.ch }

// enter takes a place of the provider's, which sleep gives back, and returns it, nil if there is none. A wake that came
// before has to be looked for with unpark then.
func (w *waiter) enter() provider.Sleeper {
	p := w.sleeper.Load()
	if p == nil || !(*p).Seat() {
		return nil
	}
	w.place.Store(p) // before wake can find it sleeping
	if w.state.CompareAndSwap(parked, sleeping) {
		return *p
	}
	(*p).Sleep(true)
	return nil
}

// sleep sleeps in the provider, unless there is something to do already.
func (w *waiter) sleep(place provider.Sleeper, ready bool) {
	place.Sleep(ready)
	// A wake that comes in between interrupts a later Sleep, which returns for no reason then.
	w.state.Store(awake)
}

// wake reports whether somebody was parked.
func (w *waiter) wake() bool {
	switch {
	case w.state.Load() == awake:
		return false
	case w.state.CompareAndSwap(parked, awake):
		w.ch <- struct{}{}
		return true
	case w.state.CompareAndSwap(sleeping, awake): // in this order, as it takes a place after it has parked
		(*w.place.Load()).Interrupt()
		return true
	}
	return false
}

// callLock lets one Read, or one Write, at a time go through its loop, in which it gives up Conn.mu while it sleeps.
// Where nobody else wants it, it costs nothing beyond mu. Its methods need mu.
type callLock struct {
	taken   bool
	waiting int32
	ended   uint32 // calls that have
	free    *sync.Cond
}

func (l *callLock) lock(mu *sync.Mutex) {
	for l.taken {
		if l.free == nil {
			l.free = sync.NewCond(mu)
		}
		l.waiting++
		l.free.Wait()
		l.waiting--
	}
	l.taken = true
}

func (l *callLock) unlock() {
	l.taken = false
	l.ended++
	if l.waiting > 0 {
		l.free.Signal()
	}
}

// gate is where those wait who need not be fast: users of urgent data, and of hand-over. It needs Conn.mu.
type gate struct {
	n  int           // how many wait
	ch chan struct{} // closed, and forgotten, when they may go on
}

func (g *gate) wake() {
	if g.ch != nil {
		close(g.ch)
		g.ch = nil
	}
}

// clockBase makes instants comparable as integers, on the monotonic clock.
var clockBase = time.Now()

func monotonic() int64 { return int64(time.Since(clockBase)) }

const never = math.MaxInt64

// deadline ends the waits of one direction. Setting it takes no timer: the sleeper starts one, so that programs which
// move deadlines with every request do it for the price of a store.
type deadline struct {
	at    atomic.Int64 // on the monotonic clock, or never
	alarm alarm.Alarm  // wakes the sleeper; needs Conn.mu
	ring  func()       // what it does
}

// set moves the deadline. A sleeper has to be woken afterwards.
func (d *deadline) set(t time.Time) {
	if t.IsZero() {
		d.at.Store(never)
		return
	}
	// In this order, as it may be late but not early. Saturating, as t may be centuries away.
	until := int64(time.Until(t))
	now := monotonic()
	if until > 0 && now > never-1-until {
		d.at.Store(never - 1)
		return
	}
	d.at.Store(now + until)
}

func (d *deadline) expired() bool {
	at := d.at.Load()
	return at != never && at <= monotonic()
}

// start makes the waiter wake at the deadline. An alarm that was left set by an earlier sleep wakes too early at worst.
func (d *deadline) start(w *waiter) {
	at := d.at.Load()
	if at == never {
		return
	}
	if d.ring == nil {
		d.ring = func() { w.wake() }
	}
	d.alarm.Set(time.Duration(at-monotonic()), d.ring)
}

func (d *deadline) stop() { d.alarm.Stop() }

// side is one direction of a Conn, for those who call Read, or Write.
type side struct {
	waiter
	callLock
	deadline deadline
}

func (s *side) init() {
	s.ch = make(chan struct{}, 1)
	s.deadline.at.Store(never)
}

// sleep waits until there may be something to do for s, or fails because of Close or the deadline. It needs mu, which
// it gives up meanwhile.
func (c *Conn) sleep(s *side) error {
	// As settle, but for the arming, which is still to come.
	if c.core.fast {
		c.signal() // of what a Read has polled for a Write that sleeps
	} else {
		c.finalize()
		if s == &c.wr && c.core.writable() {
			return nil // what was in the way has just left
		}
		c.signal()
		c.markUnread()
		c.core.fast = c.canFast()
		c.watch()
	}
	s.park()
	// From here on Close and a moved deadline find us parked.
	switch err := c.start(s); {
	case err != nil:
		s.unpark()
		return err
	case c.epClosed:
		s.unpark()
		return nil
	}
	c.sleepParked(&s.waiter, &s.deadline)
	return nil
}

// sleepUntil waits until over says so, the deadline, which may be nil, or the end of the endpoint. It needs mu.
func (c *Conn) sleepUntil(w *waiter, d *deadline, over func() bool) {
	for c.finalize(); !over() && !c.epClosed; {
		w.park()
		if d != nil && d.expired() {
			w.unpark()
			return
		}
		c.sleepParked(w, d)
	}
}

func (c *Conn) sleepParked(w *waiter, d *deadline) {
	found := false
	if s := c.spinner; s != nil {
		c.mu.Unlock()
		found = s.Spin()
		c.mu.Lock()
	}
	if found {
		w.unpark()
	} else {
		if d != nil {
			d.start(w)
		}
		c.armAndWait(w)
	}
	if w == &c.wr.waiter {
		c.core.fast = false // for what the Write does next
	}
	c.core.poll()
	c.finalize() // before signal: what leaves now may be what another waits for
	c.signal()
}

// armAndWait arms the endpoint, and waits without mu.
func (c *Conn) armAndWait(w *waiter) {
	if place := w.enter(); place != nil {
		ready := c.arm()
		c.mu.Unlock()
		w.sleep(place, ready)
		c.mu.Lock()
	} else if c.arm() {
		w.unpark()
	} else {
		c.mu.Unlock()
		w.wait()
		c.mu.Lock()
	}
}

// arm asks the provider for the wake-up that the sleepers need and reports whether there is something to poll. It needs
// mu: the last to arm decides, so it has to see who sleeps.
func (c *Conn) arm() bool {
	mode := provider.WakeSolicited
	if !c.core.fast && c.core.late != nil {
		c.later() // there may be nothing whose completion would say that there is room
	}
	if c.rd.parked() || c.wr.parked() || !c.core.fast && (c.core.life != lifeOpen || c.core.bothShut() ||
		c.core.pending() || c.urgent.out.n > 0) {
		mode = provider.WakeAny
	}
	return c.ep.Arm(mode)
}

// wake is the provider's wake function.
func (c *Conn) wake() {
	if c.rd.wake() || c.wr.wake() {
		return
	}
	c.missed.Store(true)
	if c.mu.TryLock() {
		c.mu.Unlock()
		if c.missed.Swap(false) {
			c.kick()
		}
	}
}

// lock begins a use of the core.
func (c *Conn) lock() {
	c.mu.Lock()
	c.core.fast = false
}

// unlock ends a use of the core.
func (c *Conn) unlock() {
	c.settle()
	c.mu.Unlock()
	c.takeMissed()
}

// takeMissed sees to wake-ups that came while mu was held.
func (c *Conn) takeMissed() {
	for c.missed.Load() && c.missed.Swap(false) {
		c.mu.Lock()
		if !c.epClosed { // else it may be another Conn's, see adopt
			c.core.poll()
		}
		c.settle()
		c.mu.Unlock()
	}
}

// unlockFast ends a use that has left the core on the fast path: the arming is in force, and nobody has to be woken.
func (c *Conn) unlockFast() {
	if !c.core.fast {
		c.unlock()
		return
	}
	c.mu.Unlock()
	c.takeMissed()
}

// signal wakes those who sleep and have something to do, and nobody else, or a Read and a Write that go back to sleep
// would wake each other for ever. It needs mu.
func (c *Conn) signal() {
	if c.rd.parked() && (c.core.readable() || c.epClosed) {
		c.rd.wake()
	}
	if c.wr.parked() && (c.core.writable() || c.epClosed) {
		c.wr.wake()
	}
	if !c.core.fast {
		c.signalUrgent()
		c.signalHandover()
	}
}

// settle leaves the core in a state in which nobody need look after it: who can go on is awake, what happens next wakes
// somebody. It needs mu.
//
// Only here, and in sleep, the core may take the fast path: from then on, until more happens than that data comes or
// goes, all of this is done but the arming.
func (c *Conn) settle() {
	for tries := 0; ; tries++ {
		c.finalize()
		c.signal()
		c.markUnread()
		c.core.fast = c.core.fast && tries == 0 || c.canFast()
		if c.epClosed || !c.arm() {
			break
		}
		if tries == settleTries {
			c.core.fast = false
			c.kick()
			return
		}
		c.core.poll()
	}
	c.watch()
}

// settleTries bounds how long a peer that sends without a pause can hold up whoever settles.
const settleTries = 4

// await waits until g is woken, or ctx ends. It needs mu, which it gives up meanwhile: who waits here does not poll, so
// a wake-up of the provider's has a goroutine see to it.
func (c *Conn) await(ctx context.Context, g *gate) {
	if g.ch == nil {
		g.ch = make(chan struct{})
	}
	ch := g.ch
	g.n++ // from here on signal wakes it
	c.unlock()
	select {
	case <-ch:
	case <-ctx.Done():
	}
	c.lock()
	g.n--
}
