package session

// tuner adapts the size from which a write goes by RDMA to what is measured on the connection. A transfer
// saves one copy of its bytes, and costs what its messages and the wait for the peer take. So it pays off from
//
//	threshold = cost of a transfer beyond its bytes / cost of copying a byte
//
// on. Both costs are the smallest of a window of samples: what is above that is the load of the machine, or a peer that
// was busy. The result stays near the provider's preference, as the samples know nothing of the cost at the peer.
type tuner struct {
	base int // the provider's preference; 0: the threshold is fixed

	copyNs, moveNs float64 // smallest of the window under way
	copies, moves  int     // samples in it
	sized          int     // bytes of the transfer that moveNs comes from
	skip           uint32  // counts writes, so that few are timed
	skipMoves      uint32  // likewise of transfers
}

const (
	tuneWindow = 16
	tuneEvery  = 16   // one write in so many is timed
	tuneCopy   = 4096 // smaller ones tell the cost of a message, not of a byte
	tuneSpan   = 4    // the threshold is at most so many times the preference, at least a half of it
)

// timesCopy reports whether a write of n bytes in messages should be timed.
func (t *tuner) timesCopy(n int) bool {
	if t.base == 0 || n < tuneCopy {
		return false
	}
	t.skip++
	return t.skip%tuneEvery == 0
}

// copied takes the time that it took to send n bytes in messages without waiting.
func (t *tuner) copied(n int, ns int64) {
	if perByte := float64(ns) / float64(n); t.copies == 0 || perByte < t.copyNs {
		t.copyNs = perByte
	}
	t.copies++
}

// timesMove reports whether a transfer of n bytes tells something: larger ones are all bytes.
func (t *tuner) timesMove(n int) bool {
	if t.base == 0 || n > 4*tuneSpan*t.base {
		return false
	}
	t.skipMoves++
	return t.skipMoves%tuneEvery == 0
}

// moved takes the time of a transfer whose bytes went straight into a waiting Read.
func (t *tuner) moved(n int, ns int64) {
	if t.moves == 0 || float64(ns) < t.moveNs {
		t.moveNs, t.sized = float64(ns), n
	}
	t.moves++
}

// threshold returns the threshold that follows from a full window, or 0.
func (t *tuner) threshold() int {
	if t.copies < tuneWindow || t.moves < tuneWindow {
		return 0
	}
	cost := max(0, t.moveNs-float64(t.sized)*t.copyNs)
	n := t.base * tuneSpan
	if t.copyNs > 0 {
		n = min(n, int(cost/t.copyNs))
	}
	t.copies, t.moves = 0, 0
	return max(n, t.base/2)
}
