package session

import (
	"net"
	"syscall"
	"time"
)

// timers are the clocks of a connection. None runs on an idle connection in its first state. All are used
// with Conn.mu held.
type timers struct {
	soon      *time.Timer // progress after a moment
	stuck     *time.Timer // tells the peer that a Write waits
	linger    *time.Timer // end of a closed connection
	lingerEnd time.Time   // when that is
	lingered  uint64      // messages received when the peer was last asked whether it is there; 0: it was not
	keep      *time.Timer
	keepAlive keepAlive
	shrink    *time.Timer
	quiet     uint64 // messages received when shrink was started

	soonReads uint32 // turns of Reads that had ended when soon was set

	soonSet, stuckSet, shrinkSet bool
}

// stop stops all, at the end of the connection.
func (t *timers) stop() {
	for _, t := range []*time.Timer{t.soon, t.stuck, t.linger, t.keep, t.shrink} {
		if t != nil {
			t.Stop()
		}
	}
}

// close stops those that a closed connection does not need.
func (t *timers) close() {
	t.keepAlive.idle = 0
	if t.keep != nil {
		t.keep.Stop()
	}
}

// laterDelay gives a reader that is between two Reads the time to come back.
const laterDelay = 200 * time.Microsecond

// later takes in what nobody reads after a moment, unless that is under way. It needs mu.
func (c *Conn) later() {
	t := &c.timers
	if t.soonSet {
		return
	}
	t.soonSet, t.soonReads = true, c.reading.ended
	if t.soon == nil {
		t.soon = time.AfterFunc(laterDelay, c.soon)
	} else {
		t.soon.Reset(laterDelay)
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
	if c.core.poll() == 0 && c.core.late != nil {
		c.core.pump()
	}
	if c.reading.ended == c.timers.soonReads {
		c.background()
	}
}

// block has the peer told that a Write waits for it to take data in, unless it does so within a moment by itself: a reader
// that is at work is not to be disturbed. It needs mu.
func (c *Conn) block() {
	t := &c.timers
	if t.stuckSet || !c.core.blocked() {
		return
	}
	t.stuckSet = true
	if t.stuck == nil {
		t.stuck = time.AfterFunc(laterDelay, func() {
			c.lock()
			c.timers.stuckSet = false
			if c.writing.taken && !c.epClosed {
				c.core.block()
			}
			c.unlock()
		})
	} else {
		t.stuck.Reset(laterDelay)
	}
}

// startLinger looks after a connection that has not ended by itself after d. Called again it only brings that forward.
func (t *timers) startLinger(c *Conn, d time.Duration) {
	end := time.Now().Add(d)
	switch {
	case t.linger == nil:
		t.linger = time.AfterFunc(d, c.lingered)
	case !end.Before(t.lingerEnd):
		return
	default:
		t.linger.Reset(d)
	}
	t.lingerEnd = end
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
	if seen := c.core.stats.MessagesReceived + 1; c.core.closing && !c.core.done && t.lingered != seen {
		t.lingered = seen
		c.core.ping()
		t.lingerEnd = time.Now().Add(closeTimeout / 2)
		t.linger.Reset(closeTimeout / 2)
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
	t.keepAlive = keepAlive{idle: idle, interval: interval, count: count, seen: c.core.stats.MessagesReceived}
	switch {
	case c.epClosed:
	case idle <= 0:
		if t.keep != nil {
			t.keep.Stop()
		}
	case t.keep == nil:
		t.keep = time.AfterFunc(idle, c.probe)
	default:
		t.keep.Reset(idle)
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
	case c.core.stats.MessagesReceived != k.seen, c.core.paused:
		k.seen, k.probes, next = c.core.stats.MessagesReceived, 0, k.idle
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
		c.timers.keep.Reset(next)
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
	t.quiet = c.core.stats.MessagesReceived
	if t.shrink == nil {
		t.shrink = time.AfterFunc(shrinkAfter, c.shrink)
	} else {
		t.shrink.Reset(shrinkAfter)
	}
}

func (c *Conn) shrink() {
	c.lock()
	defer c.unlock()
	c.timers.shrinkSet = false
	if c.epClosed {
		return
	}
	c.core.poll()
	if c.core.stats.MessagesReceived == c.timers.quiet {
		c.core.shrink()
		c.core.pump()
		if len(c.core.held) == 0 {
			c.core.dropHeld()
		}
	}
	c.settle()
}
