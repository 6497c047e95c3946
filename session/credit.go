package session

// Every message takes one receive buffer of the peer's, and needs one credit. The last credits are kept for
// messages that must not be stopped by data that nobody reads: data leaves reserve of them, control messages
// leave one, which only kindCredit may use.
//
// Credits go back with every message, and in a kindCredit when half of the buffers is owed. So once all that was sent
// is consumed, less than half is missing, and data can be sent: nobody has to ask. A control message that leaves its sender
// unable to send another is paid back at once, as unread data may hold up the rest. And since it otherwise takes two
// messages at least to provoke one kindCredit, two idle sides do not exchange them for ever.
//
// A side that holds bytes back until dry comes pays back any message of a peer that has no credit left to say it with, even a
// kindCredit. That ends as well, as the peer has three credits then, and has to spend two before it happens again.
//
// Data leaves one credit more than a control message needs: where data is stalled both ways, control messages and the
// credits for them cross, and each side's kindCredit, which is not paid back itself, costs it one.
const (
	reserve        = 3
	controlReserve = 2 // with less, a side can send no control message
)

// maxGrants bounds the sizes of buffers that a peer may have posted at a time.
const maxGrants = 4

// grant is a number of receive buffers of one size, posted by the peer.
type grant struct{ count, size int }

// window is what may be sent: the peer's receive buffers, in the order in which messages will take them.
type window struct {
	grants  [maxGrants]grant // the first n; the first is never used up unless it is the only one
	n       int
	credits int  // sum of counts
	total   int  // buffers announced with the last size
	stuck   bool // the peer has been told that a Write waits
	telling bool // it is to be told so, which was not possible yet
}

// add takes credits of the current size.
func (w *window) add(n int) error {
	w.grants[w.n-1].count += n
	w.credits += n
	w.stuck = w.stuck && w.credits <= reserve
	if w.credits > 1<<16 {
		return protocolError("%d credits", w.credits)
	}
	w.trim()
	return nil
}

// resize begins a new size.
func (w *window) resize(n, size int) error {
	if w.n == maxGrants || n < minReceives || size < minBuffer {
		return protocolError("resize to %d buffers of %d bytes", n, size)
	}
	w.grants[w.n] = grant{0, size}
	w.n++
	w.total = n
	return w.add(n)
}

// trim drops used up grants from the front.
func (w *window) trim() {
	for w.n > 1 && w.grants[0].count == 0 {
		copy(w.grants[:], w.grants[1:w.n])
		w.n--
	}
}

// size is the size of the buffer that the next message will take.
func (w *window) size() int { return w.grants[0].size }

// use takes a credit.
func (w *window) use() {
	w.grants[0].count--
	w.credits--
	w.trim()
}

// old is the number of buffers left of sizes before the last.
func (w *window) old() int { return w.credits - w.grants[w.n-1].count }

func (w *window) data() bool    { return w.credits > reserve }
func (w *window) control() bool { return w.credits > 1 }

// short reports that few buffers are left: small writes gather into one message meanwhile. More than half
// of the buffers are out then, so that credits will come.
func (w *window) short() bool { return w.credits-controlReserve <= w.total/4 }
