package session

// Every message takes one receive buffer of the peer's, and needs one credit. The last credits are kept for messages
// that data which nobody reads must not stop: data leaves reserve of them, control messages leave one, which only
// kindCredit may use.
//
// Credits go back with every message, and in a kindCredit when half of the buffers is ungranted. So once all that was
// sent is consumed, less than half is missing, and data can be sent: nobody has to ask. A control message that leaves
// its sender unable to send another is replenished at once, as unread data may hold up the rest. Otherwise it takes two
// messages at least to provoke one kindCredit. So two idle sides do not exchange them for ever.
//
// Data leaves one credit more than a control message needs. Where data is stalled both ways, control messages and the
// credits for them cross, and each side's kindCredit, which is not replenished itself, costs it one.
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
	told    bool // the peer knows that a Write waits for credits
}

// add takes credits of the current size.
func (w *window) add(n int) error {
	w.grants[w.n-1].count += n
	w.credits += n
	w.told = w.told && w.credits <= reserve
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

// newest is the size of the buffers granted last.
func (w *window) newest() int { return w.grants[w.n-1].size }

// use takes a credit.
func (w *window) use() {
	w.grants[0].count--
	w.credits--
	if w.n > 1 {
		w.trim()
	}
}

// old is the number of buffers left of sizes before the last.
func (w *window) old() int { return w.credits - w.grants[w.n-1].count }

func (w *window) data() bool    { return w.credits > reserve }
func (w *window) control() bool { return w.credits > 1 }

// short reports that few buffers are left. More than half of them are out then, so that credits will come.
func (w *window) short() bool { return w.credits-controlReserve <= w.total/4 }
