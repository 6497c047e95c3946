package session

import (
	"net"
	"syscall"
	"time"

	"sansock/internal/alarm"
)

// timers are the clocks of a connection. None runs on an idle connection in its first state. All are used
// with Conn.mu held.
type timers struct {
	soon      alarm.Alarm // progress after a moment
	soonSet   bool
	soonReads uint32 // Reads that had ended when soon was set

	blocked    alarm.Alarm // tells the peer that a Write waits
	blockedSet bool

	linger    alarm.Alarm // end of a closed connection
	lingerEnd time.Time   // when that is; zero: it is not set
	lingered  uint64      // messages received when the peer was last asked whether it is there; 0: it was not

	keep      alarm.Alarm
	keepAlive keepAlive

	shrink    alarm.Alarm
	shrinkSet bool
	quiet     uint64 // messages received when shrink was set
}

// stop stops all, at the end of the connection.
func (t *timers) stop() {
	for _, a := range []*alarm.Alarm{&t.soon, &t.blocked, &t.linger, &t.keep, &t.shrink} {
		a.Stop()
	}
}

// close stops those that a closed connection does not need.
func (t *timers) close() {
	t.keepAlive.idle = 0
	t.keep.Stop()
}

// laterDelay gives a reader that is between two Reads the time to come back.
const laterDelay = 200 * time.Microsecond

// later takes in what nobody reads after a moment, unless that is under way. It needs mu.
func (c *Conn) later() {
	t := &c.timers
	if t.soonSet {
		return
	}
	t.soonSet, t.soonReads = true, c.rd.ended
	if !t.soon.Again(laterDelay) {
		t.soon.Set(laterDelay, c.soon)
	}
}

// soon runs a moment after there was something that nobody read, or a message for which there was no room. A reader that has come
// back since then will do so again.
func (c *Conn) soon() {
	c.lock()
	defer c.unlock() // sets the timer again if need be
	c.timers.soonSet = false
	if c.epClosed {
		return
	}
	c.core.poll()
	if c.rd.ended == c.timers.soonReads {
		c.background()
	}
}

// block has the peer told that a Write waits for it to take data in, unless it does so within a moment by itself: a reader
// that is at work is not to be disturbed. It needs mu.
func (c *Conn) block() {
	if t := &c.timers; !t.blockedSet && c.core.blocked() {
		t.blockedSet = true
		if !t.blocked.Again(laterDelay) {
			t.blocked.Set(laterDelay, c.blocked)
		}
	}
}

// blocked runs when a Write has waited for a moment, unless it goes on.
func (c *Conn) blocked() {
	c.lock()
	defer c.unlock()
	c.timers.blockedSet = false
	if c.wr.taken && !c.epClosed {
		c.core.block()
	}
}

// startLinger looks after a connection that has not ended by itself after d. Called again it only brings that forward.
// It needs mu.
func (c *Conn) startLinger(d time.Duration) {
	t := &c.timers
	if end := time.Now().Add(d); t.lingerEnd.IsZero() || end.Before(t.lingerEnd) {
		t.lingerEnd = end
		t.linger.Set(d, c.lingered)
	}
}

// lingered drops a connection that should have ended. One that waits for its peer to take the last data goes on for as long as
// the peer answers, as over TCP: it is looked at twice in closeTimeout, and may be silent once.
func (c *Conn) lingered() {
	c.lock()
	defer c.unlock()
	if c.epClosed {
		return
	}
	c.core.poll()
	t := &c.timers
	// One more than was received, as 0 is taken.
	closing := c.core.life == lifeClosing || c.core.life == lifeCloseSent
	if seen := c.core.received + 1; closing && t.lingered != seen {
		t.lingered = seen
		c.core.ping()
		t.lingerEnd = time.Time{}
		c.startLinger(closeTimeout / 2)
		return
	}
	c.core.abort(abortReset)
	c.closeEndpoint()
}

// keepAlive is the state of keepalive probing.
type keepAlive struct {
	idle, interval time.Duration
	count          int
	probes         int    // sent without an answer
	seen           uint64 // messages received when last looked
}

// SetKeepAlive sends a probe after idle without a message from the peer, and then every interval; after count probes
// without an answer the connection fails with ETIMEDOUT. idle 0 switches it off.
func (c *Conn) SetKeepAlive(idle, interval time.Duration, count int) error {
	c.lock()
	defer c.unlock()
	if c.closed.Load() {
		return net.ErrClosed
	}
	t := &c.timers
	t.keepAlive = keepAlive{idle: idle, interval: interval, count: count, seen: c.core.received}
	switch {
	case c.epClosed:
	case idle <= 0:
		t.keep.Stop()
	default:
		t.keep.Set(idle, c.probe)
	}
	return nil
}

// probe runs when the peer may have been silent for too long.
func (c *Conn) probe() {
	c.lock()
	defer c.unlock()
	k := &c.timers.keepAlive
	if c.epClosed || k.idle <= 0 {
		return
	}
	c.core.poll()
	next := k.interval
	switch {
	case c.core.received != k.seen, c.core.line.state == linePaused, c.core.line.state == lineQuiet:
		k.seen, k.probes, next = c.core.received, 0, k.idle
	case k.probes >= k.count:
		// A peer that is there after all sees a reset, as over TCP. A message that does not leave is not waited for.
		c.core.fail(syscall.ETIMEDOUT, abortReset)
		c.closeEndpoint()
	default:
		// One that cannot leave counts too: a peer that is there pays its credit back.
		k.probes++
		c.core.ping()
	}
	if !c.epClosed {
		c.timers.keep.Set(next, c.probe)
	}
}

// shrinkAfter is how long a connection has to be silent before it gives its large receive region back.
const shrinkAfter = 10 * time.Second

// watchShrink starts to look for silence on a connection that has grown. It needs mu.
func (c *Conn) watchShrink() {
	t := &c.timers
	if t.shrinkSet || c.core.level == 0 {
		return
	}
	t.shrinkSet = true
	t.quiet = c.core.received
	t.shrink.Set(shrinkAfter, c.shrink)
}

func (c *Conn) shrink() {
	c.lock()
	defer c.unlock()
	c.timers.shrinkSet = false
	if c.epClosed {
		return
	}
	c.core.poll()
	if c.core.received == c.timers.quiet {
		c.core.shrink()
	}
}

// watch has somebody look after what does not come with a completion. It needs mu.
func (c *Conn) watch() {
	if c.epClosed {
		return
	}
	c.watchShrink()
	if !c.core.fast && !c.rd.taken && c.core.behind() {
		c.later()
	}
}

// kick has a goroutine see to what arrived while nobody was waiting.
func (c *Conn) kick() {
	if c.kicks.Add(1) == 1 {
		if c.kicked == nil {
			c.kicked = c.progress
		}
		go c.kicked()
	}
}

func (c *Conn) progress() {
	for {
		k := c.kicks.Load()
		c.lock()
		if !c.epClosed {
			c.core.poll()
			c.background()
		}
		c.unlock()
		if c.kicks.CompareAndSwap(k, 0) {
			return
		}
	}
}
