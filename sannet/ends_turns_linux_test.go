package sannet_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestEndsInTurn: both ends call at random, one call after the other, and each call returns what it
// returns on TCP. SANNET_TEST_SEEDS tells how many seeds to run.
func TestEndsInTurn(t *testing.T) {
	seeds, err := strconv.Atoi(os.Getenv("SANNET_TEST_SEEDS"))
	if err != nil {
		seeds = 30
	}
	for _, newPath := range []func(testing.TB) path{tcpPath, sanPath, shmPath} {
		p := newPath(t)
		t.Run(p.name, func(t *testing.T) {
			for seed := range seeds {
				t.Run(randomName+strconv.Itoa(seed), func(t *testing.T) {
					want := takeTurns(t, tcpPath(t), seed)
					got := takeTurns(t, p, seed)
					assert.Equal(t, strings.Join(want, "\n"), strings.Join(got, "\n"))
				})
			}
		})
	}
}

// turns is a connection whose ends call in turn.
type turns struct {
	*script
	*rand.Rand
	ends   [2]conn
	unread [2]int  // how much waits for the end to read it
	gone   [2]bool // the end has closed, with SetLinger(0)
	linger [2]bool
}

// takeTurns returns what the calls of a seed return.
func takeTurns(t *testing.T, p path, seed int) []string {
	s := &script{T: t, path: p, names: new(names)}
	a, b := s.pair()
	turns := &turns{script: s, Rand: rand.New(rand.NewPCG(uint64(seed), 3)), ends: [2]conn{a, b}}
	for range 12 {
		turns.turn()
		settle()
	}
	a.Close()
	b.Close()
	return s.notes
}

// turn makes one call.
func (t *turns) turn() {
	i := t.IntN(2)
	end, name := t.ends[i], []string{"client", "server"}[i]
	switch op := t.IntN(16); {
	case op < 5:
		n := 7
		if op > 2 {
			n = 40_000
		}
		if t.unread[1-i]+n > 45_000 {
			return // a window of TCP
		}
		m, err := end.Write(pattern(n))
		t.unread[1-i] += m
		t.result(fmt.Sprintf("%s: write %d", name, n), m, err)
	case op < 8:
		t.reads(i, name, func() (int, error) { return end.Read(make([]byte, 3)) })
	case op < 11:
		t.reads(i, name, func() (int, error) {
			n, err := io.Copy(io.Discard, readerOnly{end})
			return int(n), err
		})
	case op < 13:
		t.failed(name+": close write", end.CloseWrite())
	case op < 14:
		t.linger[i] = t.SetLinger(i) == nil
	default:
		err := end.Close()
		t.gone[i] = t.gone[i] || err == nil && t.linger[i]
		t.failed(name+": close", err)
	}
}

// SetLinger makes the end's Close a reset.
func (t *turns) SetLinger(i int) error {
	err := t.ends[i].SetLinger(0)
	t.failed("set linger", err)
	return err
}

// reads notes what a call returns that reads, and ends it where it waits. How much is left of what
// an end had written that has discarded it is not noted.
func (t *turns) reads(i int, name string, call func() (int, error)) {
	var n int
	var err error
	t.ends[i].SetReadDeadline(time.Time{})
	wait := t.park(func(*script) { n, err = call() })
	t.ends[i].SetReadDeadline(past)
	wait()
	t.unread[i] -= n
	if t.gone[1-i] {
		n = 0
	}
	t.result(name+": read", n, err)
}

// settle returns once every other goroutine of this process waits.
func settle() {
	for looks := 0; looks < 3; {
		looks++
		if busy() {
			looks = 0
		}
		runtime.Gosched()
	}
}

// stacks returns what busy may write to.
var stacks = sync.OnceValue(func() []byte { return make([]byte, 1<<20) })

// busy reports whether another goroutine of this process does not wait.
func busy() bool {
	buf := stacks()
	for i, stack := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if i > 0 && !waits(stack[strings.Index(stack, "[")+1:]) { // the first is the caller
			return true
		}
	}
	return false
}
