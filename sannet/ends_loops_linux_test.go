package sannet_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEndsAtWork: an end ends, or its process stops, in the middle of its work.
func TestEndsAtWork(t *testing.T) { runEnds(t, atWorkCases()) }

func atWorkCases() (cases []endCase) {
	for _, n := range []int{8, 1000, 100_000} {
		cases = append(cases, inALoop(n), inReads(n), inEchoes(n))
	}
	return append(cases, stopped("1000 lines", 8500, 8, 9), stopped("100 x 1 KiB", 100<<10, 1<<10),
		inTheMiddle(false), inTheMiddle(true), writer())
}

// inTheMiddle: the actor ends during a Write of more than anything holds. A part has been accepted,
// and arrives.
func inTheMiddle(unread bool) endCase {
	const much, first = 10 << 20, 1 << 20
	return endCase{
		name: titled("in the middle of a Write", unread),
		ways: allWays,
		actor: func(a *actor) {
			if unread {
				a.unread()
			}
			written := make(chan int)
			go func() {
				n, _ := a.Write(pattern(much))
				written <- n
			}()
			a.wait()
			a.end()
			if a.way == closes {
				a.tell(<-written)
			}
		},
		witness: func(w *witness) {
			if unread {
				w.writes(8, nil)
			}
			b := make([]byte, first)
			_, err := io.ReadFull(w, b)
			require.NoError(w, err)
			assert.True(w, bytes.Equal(b, pattern(first)))
			w.goOn()
			w.gone()
			n, err := w.readsFrom(first, 100_000)
			w.is("read", ending(unread), err)
			assert.LessOrEqual(w, n, much)
			if w.way == closes {
				if accepted := w.told(); unread {
					assert.LessOrEqual(w, n, accepted)
				} else {
					assert.Equal(w, accepted, n)
				}
			}
		},
	}
}

// inALoop: the actor ends in a loop of Writes. All that it counts as accepted arrives.
func inALoop(n int) endCase {
	return endCase{
		name: fmt.Sprintf("in a loop of Writes of %d bytes", n),
		ways: allWays,
		actor: func(a *actor) {
			var accepted atomic.Int64
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					m, err := a.Write(pattern(n))
					accepted.Add(int64(m))
					if err != nil {
						return
					}
				}
			}()
			a.wait()
			a.tell(int(accepted.Load()))
			a.end()
			if a.way == closes {
				<-done
				a.tell(int(accepted.Load()))
			}
		},
		witness: func(w *witness) {
			b := make([]byte, n)
			for range 20 {
				_, err := io.ReadFull(w, b)
				require.NoError(w, err)
				assert.True(w, bytes.Equal(b, pattern(n)))
			}
			w.goOn()
			got, err := 20*n, error(nil)
			for err == nil {
				var m int
				m, err = io.ReadFull(w, b)
				assert.True(w, bytes.Equal(b[:m], pattern(m)))
				got += m
			}
			if err == io.ErrUnexpectedEOF {
				err = io.EOF
			}
			w.is("read", io.EOF, err)
			assert.GreaterOrEqual(w, got, w.told(), "as many as were accepted before the end")
			w.gone()
			if w.way == closes {
				assert.Equal(w, w.told(), got, "as many as were accepted")
			}
		},
	}
}

// writer: a witness that writes on and on is told of a reset, or of a pipe that is broken where the
// actor had read everything.
func writer() endCase {
	return endCase{
		name: "writes on",
		ways: allWays,
		actor: func(a *actor) {
			a.lines(5)
			a.read(100)
			a.end()
		},
		witness: func(w *witness) {
			_, err := fill(w.conn)
			w.isOne("write", err, syscall.ECONNRESET, syscall.EPIPE)
			w.writes(1, syscall.EPIPE)
			w.reads(100, 35, io.EOF)
			w.gone()
		},
	}
}

// inReads: the actor ends in a loop of Reads. What it has read had been written, and a Write does
// not hang.
func inReads(n int) endCase {
	return endCase{
		name: fmt.Sprintf("in a loop of Reads of Writes of %d bytes", n),
		ways: allWays,
		actor: func(a *actor) {
			a.lines(5)
			var read atomic.Int64
			go func() {
				for b := make([]byte, 64<<10); ; {
					m, err := a.Read(b)
					read.Add(int64(m))
					if err != nil {
						return
					}
				}
			}()
			a.wait()
			a.tell(int(read.Load()))
			a.end()
		},
		witness: func(w *witness) {
			wrote, err := 0, error(nil)
			for i := 0; err == nil; i++ {
				if i == 50 {
					w.goOn()
				}
				var m int
				m, err = w.Write(zeros(n))
				wrote += m
			}
			w.isOne("write", err, syscall.ECONNRESET, syscall.EPIPE)
			assert.LessOrEqual(w, w.told(), wrote, "read more than was written")
			w.writes(1, syscall.EPIPE)
			w.reads(100, 35, io.EOF)
			w.gone()
		},
	}
}

// inEchoes: the actor ends in a loop of Reads and Writes. All that comes back is what was sent.
func inEchoes(n int) endCase {
	return endCase{
		name: fmt.Sprintf("in a loop of echoes of %d bytes", n),
		ways: allWays,
		actor: func(a *actor) {
			go io.Copy(writerOnly{a.conn}, readerOnly{a.conn})
			a.wait()
			a.end()
		},
		witness: func(w *witness) {
			b := make([]byte, n)
			wrote, read, err := 0, 0, error(nil)
			for i := 0; err == nil; i++ {
				if i == 50 {
					w.goOn()
				}
				var m int
				m, err = w.Write(pattern(n))
				wrote += m
				if err != nil {
					break
				}
				m, err = io.ReadFull(w, b)
				read += m
				assert.Equal(w, pattern(m), b[:m])
			}
			assert.LessOrEqual(w, read, wrote)
			if err != io.EOF && err != io.ErrUnexpectedEOF && !errors.Is(err, syscall.EPIPE) {
				require.ErrorIs(w, err, syscall.ECONNRESET)
			}
			w.gone()
			m, err := io.Copy(io.Discard, w.conn)
			assert.LessOrEqual(w, read+int(m), wrote)
			if err != nil {
				require.ErrorIs(w, err, syscall.ECONNRESET)
			}
			w.writesUntilTold()
			w.reads(1, 0, io.EOF)
		},
	}
}

// writesUntilTold writes until both errors have been told.
func (w *witness) writesUntilTold() {
	w.Helper()
	var err error
	for err == nil {
		_, err = w.Write(zeros(1))
	}
	w.Write(zeros(1))
	w.writes(1, syscall.EPIPE)
}

// stopped: what was accepted arrives while the process does not run, and so does its end when it is
// killed then.
func stopped(what string, n int, sizes ...int) endCase {
	return endCase{
		name: "stopped after " + what,
		ways: []way{killed},
		actor: func(a *actor) {
			a.write(n, sizes...)
			a.must(a.say(wordStop, 0))
			select {}
		},
		witness: func(w *witness) {
			require.Equal(w, wordStop, soon(w.T, w.words)[0])
			b := make([]byte, n)
			_, err := io.ReadFull(w, b)
			require.NoError(w, err)
			assert.Equal(w, pattern(n), b)
			require.NoError(w, w.process.cmd.Process.Kill())
			w.reads(1, 0, io.EOF)
			w.gone()
			w.writesUntil(syscall.EPIPE)
		},
	}
}

// TestEndsBeforeAccept: a process ends that has not accepted a connection. The dialer sees a reset,
// whether it has written or not, and then that nobody listens.
func TestEndsBeforeAccept(t *testing.T) {
	for _, p := range endPaths {
		if !p.process {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			for _, way := range deaths {
				t.Run(string(way), func(t *testing.T) { endBeforeAccept(t, p, way) })
			}
		})
	}
}

func endBeforeAccept(t *testing.T, p endPath, way way) {
	w := newWitness(t, p, way)
	end := openEnd(w, p.name)
	w.startAct(act{Case: listensName, Path: p.name, Way: way})
	address := soon(t, w.words)[1]
	for range 2 {
		c, err := end.connect(nil, p.network, address)
		require.NoError(t, err)
		w.keep(c)
		w.conns = append(w.conns, c.(conn))
	}
	w.conn = w.conns[0]
	w.writes(8, nil)
	w.goOn()
	for _, c := range w.conns {
		w.conn = c
		w.reads(1, 0, syscall.ECONNRESET)
		w.reads(1, 0, io.EOF)
		w.writes(1, syscall.EPIPE)
	}
	w.gone()
	_, err := end.connect(nil, p.network, address)
	assert.ErrorIs(t, err, syscall.ECONNREFUSED)
}

// listensName is the case of an actor that does not accept.
const listensName = "listens"

func beforeAcceptCases() []endCase {
	return []endCase{{name: listensName, conns: -1, actor: func(a *actor) {
		a.wait()
		a.end()
	}}}
}
