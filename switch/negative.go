package sanswitch

import (
	"net/netip"
	"sync"
	"time"
)

// maxNegatives bounds the destinations that are remembered. Which are forgotten does not matter much: they
// cost the next dial its head start.
const maxNegatives = 1024

// negatives remembers the destinations that could not be reached over a SAN, and why.
type negatives struct {
	first time.Duration // the first pause
	ttl   time.Duration // the longest

	mu sync.Mutex // a leaf
	// +checklocks:mu
	m map[netip.AddrPort]negative
}

// negative is what is remembered of a destination.
type negative struct {
	err   error
	kind  negativeKind
	last  time.Time     // when the last failure, or lost race, was noted
	pause time.Duration // for how long from then on the SAN is avoided; 0: not at all yet
	row   int           // how many races were lost in a row, or, of an answer, how often it came
}

// negativeKind is what is behind a negative.
type negativeKind uint8

const (
	negativeFailure negativeKind = iota // the SAN does not work to there
	negativeAnswer                      // the answer was no
)

// route is that of a connection over TCP because of the negative. An answer that is a moment old
// is as good as one of now.
func (n negative) route() Route {
	if n.kind == negativeAnswer {
		return Route{Path: PathTCP, Reason: reasonOf(n.err), Peer: peerReasonOf(n.err), Err: n.err}
	}
	return Route{Path: PathTCP, Reason: ReasonCached, Err: n.err}
}

// An answer that is no, and has come answerLimit times in a row, is believed for answerFactor
// times as long as it took, and maxAnswer at most. So who dials a peer without a SAN all the time
// does not ask it all the time, and who starts to listen is found in a moment.
const (
	answerLimit  = 8
	answerFactor = 64
	maxAnswer    = 10 * time.Millisecond
)

// firstPause is how long a first failure keeps dials off the SAN. Most pass quickly, as that of a peer which starts anew, or
// of a host that was busy; what does not pass is tried less and less often.
const firstPause = time.Second

// lateLimit is how many races in a row the SAN has to lose until that is remembered. One says little where both ends are
// on a host that is busy, and keeping connections off the SAN costs more than another head start.
const lateLimit = 3

func newNegatives(ttl time.Duration) *negatives {
	return &negatives{first: firstPause, ttl: ttl, m: make(map[netip.AddrPort]negative)}
}

// get returns why dst is to be avoided, and whether it is.
func (n *negatives) get(dst netip.AddrPort) (negative, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	neg, ok := n.m[dst]
	return neg, ok && time.Since(neg.last) < neg.pause
}

// failed remembers what the failure of an attempt, which began at began, says about the next one
// to dst.
func (n *negatives) failed(dst netip.AddrPort, f *failure, began time.Time) {
	switch f.lesson {
	case lessonAvoid:
		n.add(dst, f.err, began)
	case lessonAsk:
		n.answered(dst, f.err, began, f.took)
	}
}

// answered remembers that the answer of dst was no, because of err, which took so long.
func (n *negatives) answered(dst netip.AddrPort, err error, began time.Time, took time.Duration) {
	n.note(dst, began, func(neg *negative, together bool) bool {
		row := 1
		if neg.kind == negativeAnswer {
			row += neg.row
		}
		*neg = negative{err: err, kind: negativeAnswer, row: row}
		if row >= answerLimit {
			neg.pause = min(answerFactor*took, maxAnswer, n.ttl)
		}
		return true
	})
}

// forget forgets the answers of all destinations with the port: somebody listens there now.
func (n *negatives) forget(port uint16) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for dst, neg := range n.m {
		if dst.Port() == port && neg.kind == negativeAnswer {
			delete(n.m, dst)
		}
	}
}

// add remembers that dst could not be reached because of err, by a dial that began at began.
func (n *negatives) add(dst netip.AddrPort, err error, began time.Time) {
	n.note(dst, began, func(neg *negative, together bool) bool {
		if together && neg.pause > 0 && neg.kind == negativeFailure {
			return false
		}
		neg.err, neg.kind, neg.row = err, negativeFailure, 0
		n.lengthen(neg)
		return true
	})
}

// late notes that the SAN has lost a race to dst that began at began, and remembers err once that has become a habit.
func (n *negatives) late(dst netip.AddrPort, err error, began time.Time) {
	n.note(dst, began, func(neg *negative, together bool) bool {
		if together {
			return false
		}
		if neg.kind == negativeAnswer {
			*neg = negative{}
		}
		if neg.row++; neg.row < lateLimit {
			neg.pause = 0
			return true
		}
		neg.err = err
		n.lengthen(neg)
		return true
	})
}

// lengthen makes the pause that of one failure more in a row.
func (n *negatives) lengthen(neg *negative) { neg.pause = min(max(2*neg.pause, n.first), n.ttl) }

// note has change update what is remembered of dst, unless that reports false, after a dial that began at began. Dials that were
// made together, as by a client that opens many connections at a time, count as one: together tells that the last one was
// noted after this one began.
func (n *negatives) note(dst netip.AddrPort, began time.Time, change func(neg *negative, together bool) bool) {
	if n.ttl <= 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	neg, ok := n.m[dst]
	if ok && n.stale(neg, now) {
		neg = negative{}
	}
	if !change(&neg, !began.After(neg.last)) {
		return
	}
	if !ok && len(n.m) >= maxNegatives {
		n.shrink(now)
	}
	neg.last = now
	n.m[dst] = neg
}

// stale reports whether nothing has been heard for so long that neg does not count any more.
func (n *negatives) stale(neg negative, now time.Time) bool {
	return now.Sub(neg.last) >= neg.pause+n.ttl
}

// won notes that the SAN was fast enough.
func (n *negatives) won(dst netip.AddrPort) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.m, dst)
}

// shrink makes room for one.
//
// +checklocks:n.mu
func (n *negatives) shrink(now time.Time) {
	for dst, neg := range n.m {
		if n.stale(neg, now) {
			delete(n.m, dst)
		}
	}
	for dst := range n.m {
		if len(n.m) < maxNegatives {
			return
		}
		delete(n.m, dst)
	}
}
