package sannet_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestEndCounts: what Write says that it has written is what the peer can read, at most, and
// exactly that where nothing is discarded.
func TestEndCounts(t *testing.T) { runEnds(t, countCases()) }

// countEnd is how the actor of a case ends, while one end writes without a pause and the other one
// reads.
type countEnd struct {
	name   string
	end    func(*actor) error
	reads  bool  // the actor is the one who reads
	unread bool  // the actor has unread data
	exact  bool  // nothing is discarded
	err    error // that the witness reads in the end
}

// manyBytes is how much is written, and read, with one call.
const manyBytes = 8 << 20

var countEnds = []countEnd{
	{name: "Close", end: closeActor, exact: true, err: io.EOF},
	{name: "CloseWrite", end: func(a *actor) error { return a.CloseWrite() }, exact: true, err: io.EOF},
	{name: deadlineEnd, end: func(a *actor) error { return a.SetWriteDeadline(past) }, exact: true,
		err: io.EOF},
	{name: "Close with unread data", end: closeActor, unread: true, err: syscall.ECONNRESET},
	{name: "SetLinger(0)", end: func(a *actor) error {
		a.SetLinger(0)
		return a.Close()
	}, err: syscall.ECONNRESET},
	{name: "the reader closes", end: closeActor, reads: true},
}

// deadlineEnd is the one after which the actor has yet to close.
const deadlineEnd = "deadline"

func closeActor(a *actor) error { return a.Close() }

func countCases() (cases []endCase) {
	for _, e := range countEnds {
		cases = append(cases, e.endCase())
	}
	return cases
}

func (e countEnd) endCase() endCase {
	return endCase{
		name:  "counts, " + e.name,
		ways:  []way{closes},
		conns: 40,
		actor: func(a *actor) {
			for _, c := range a.conns {
				a.conn = c
				a.wait()
				a.tell(e.round(a))
				a.conn.Close() // if it has not
			}
			a.conns = nil
			a.end()
		},
		witness: func(w *witness) {
			for _, c := range w.conns {
				w.conn = c
				w.watch.Reset(stuck)
				w.writes(8, nil)
				w.goOn()
				if e.reads {
					w.wrote(writeMany(w.conn))
					continue
				}
				n, err := readMany(w.conn)
				w.is("read", e.err, err)
				if told := w.told(); e.exact {
					require.Equal(w, told, n)
				} else {
					require.LessOrEqual(w, n, told)
				}
			}
			w.gone()
		},
	}
}

// wrote checks that the reader has not read more than was written.
func (w *witness) wrote(n int, err error) {
	w.Helper()
	if !errors.Is(err, syscall.EPIPE) { // the reader had read everything
		require.ErrorIs(w, err, syscall.ECONNRESET)
	}
	require.LessOrEqual(w, w.told(), n)
}

// round returns how much the actor has written, or read.
func (e countEnd) round(a *actor) int {
	if e.unread {
		a.read(1)
	} else {
		a.read(8)
	}
	counted := make(chan int)
	go func() {
		var n int
		if e.reads {
			n, _ = readMany(a.conn)
		} else {
			n, _ = writeMany(a.conn)
		}
		counted <- n
	}()
	time.Sleep(rand.N(3 * time.Millisecond)) // at any moment
	a.must(e.end(a))
	n := <-counted
	if e.name == deadlineEnd {
		a.must(a.CloseWrite())
	}
	return n
}

var errOtherBytes = errors.New("other bytes than were written")

// writeMany writes until it fails.
func writeMany(w io.Writer) (n int, err error) {
	for err == nil {
		var m int
		m, err = w.Write(pattern(manyBytes))
		n += m
	}
	return n, err
}

// readMany reads until it fails, what writeMany writes.
func readMany(r io.Reader) (n int, err error) {
	b := make([]byte, manyBytes)
	for err == nil {
		var m int
		m, err = r.Read(b)
		at := n % manyBytes
		until := min(at+m, manyBytes)
		first, second := b[:until-at], b[until-at:m]
		if !bytes.Equal(first, pattern(until)[at:]) || !bytes.Equal(second, pattern(len(second))) {
			return n, errOtherBytes
		}
		n += m
	}
	return n, err
}
