package sannet_test

import (
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"
)

// amount is what an actor writes before it ends.
type amount struct {
	name   string
	n      int
	sizes  []int
	large  bool // more than a TCP socket takes for a reader that does not read
	atOnce bool // TCP sends it at once
}

// amounts are those of the cases.
var amounts = []amount{
	{name: "1000 lines", n: 8500, sizes: []int{8, 9}},
	{name: "200 x 64 B", n: 200 * 64, sizes: []int{64}},
	{name: "100 x 1 KiB", n: 100 << 10, sizes: []int{1 << 10}, large: true},
	{name: "1 MiB", n: 1 << 20, sizes: []int{1 << 20}, large: true},
	{name: "nothing"},
}

// fewLines are so few that TCP sends them at once: its first window is of ten segments, and the
// first acknowledgments are not delayed. 100 lines are not, and a reset discards most of them.
var fewLines = []amount{
	{name: "3 lines", n: 21, sizes: []int{7}, atOnce: true},
	{name: "5 lines", n: 35, sizes: []int{7}, atOnce: true},
	{name: "10 lines", n: 70, sizes: []int{7}, atOnce: true},
	{name: "20 lines", n: 140, sizes: []int{7}, atOnce: true},
	{name: "100 lines", n: 700, sizes: []int{7}},
}

// before is what an actor does between its last Write and its end, or has not done.
type before struct {
	name       string
	closeWrite bool
	unread     bool // it has received data that it has not read
}

var befores = []before{
	{name: "plain"},
	{name: "CloseWrite", closeWrite: true},
	{name: "unread", unread: true},
	{name: "CloseWrite, unread", closeWrite: true, unread: true},
}

// reader is how a witness reads.
type reader struct {
	name   string
	buffer int
	later  bool // not before the actor is gone
}

var readers = []reader{
	{name: "reading", buffer: 1 << 20},
	{name: "reading in parts", buffer: 1000},
	{name: "reading later", buffer: 1 << 20, later: true},
}

// endCases are all cases, by the test that runs them. The processes of actors look theirs up.
var endCases = []func() []endCase{
	arriveCases, seenCases, atWorkCases, countCases, beforeAcceptCases,
}

// TestEnds: an end of a connection ends, and everything arrives that was accepted.
func TestEnds(t *testing.T) { runEnds(t, arriveCases()) }

func arriveCases() (cases []endCase) {
	for _, am := range amounts {
		for _, be := range befores {
			for _, r := range readers {
				cases = append(cases, arrives(am, be, r))
			}
		}
	}
	for _, am := range fewLines {
		for _, r := range readers {
			cases = append(cases, arrives(am, before{name: "unread", unread: true}, r))
		}
	}
	return cases
}

// allWays are the ways of an end, most of which need a process.
var allWays = append([]way{closes}, deaths...)

// unread leaves data unread.
func (a *actor) unread() { a.read(1) }

// hand waits, on TCP, until the peer's kernel has everything: an end that is to be a reset discards
// the rest there.
func (a *actor) hand() {
	c, ok := a.conn.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := c.SyscallConn()
	a.must(err)
	for left := 1; left > 0; {
		a.must(raw.Control(func(fd uintptr) {
			left, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		}))
		a.must(err)
	}
}

// arrives: everything arrives that was accepted, and then the end, or a reset where the actor has
// not read all that it had received. A reset discards what TCP has not sent, which is much where
// nobody reads.
func arrives(am amount, be before, r reader) endCase {
	discards := be.unread && am.large && r.later
	return endCase{
		name: fmt.Sprintf("%s, %s, %s", am.name, be.name, r.name),
		ways: allWays,
		actor: func(a *actor) {
			if be.unread {
				a.unread()
			}
			a.write(am.n, am.sizes...)
			if be.closeWrite {
				a.must(a.CloseWrite())
			}
			if be.unread && !discards && !am.atOnce {
				a.hand()
			}
			a.end()
		},
		witness: func(w *witness) {
			end := error(io.EOF)
			if be.unread {
				w.writes(8, nil)
				if !be.closeWrite {
					end = syscall.ECONNRESET
				}
			}
			if r.later {
				w.gone()
			}
			if discards {
				n, err := w.readsAll(r.buffer)
				assert.LessOrEqual(w, n, am.n)
				if n < am.n {
					end = syscall.ECONNRESET
				}
				w.is("read", end, err)
			} else {
				w.reads(r.buffer, am.n, end)
			}
			if !r.later {
				w.gone()
			}
			w.afterwards(be)
		},
	}
}

// afterwards checks what a witness sees that has read everything, and then the end.
func (w *witness) afterwards(be before) {
	w.reads(1, 0, io.EOF)
	if !be.unread {
		// The actor's kernel answers the first with a reset, or the second.
		w.writes(1, nil)
		var err error
		for err == nil {
			_, err = w.Write(zeros(1))
		}
		w.is("write", syscall.EPIPE, err)
	}
	w.writes(1, syscall.EPIPE)
	w.reads(1, 0, io.EOF)
	w.is("close", syscall.ENOTCONN, w.CloseWrite())
	w.is("close", nil, w.conn.Close())
}
