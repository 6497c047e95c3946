package sannet_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEndsSeen: what the end that is left sees of the other's end, whatever it is doing.
func TestEndsSeen(t *testing.T) { runEnds(t, seenCases()) }

func seenCases() (cases []endCase) {
	for _, n := range []int{8, 100 << 10, 1 << 20} {
		cases = append(cases, allRead(n))
	}
	for _, unread := range []bool{false, true} {
		cases = append(cases, writesFirst(unread, 5), writesFirst(unread, 1000), pastDeadline(unread),
			parkedRead(unread), copies(unread), halfClosed(unread), closesWriteFirst(unread), many(unread))
	}
	for _, n := range []int{33 << 10, 64 << 10, 100 << 10, 256 << 10, 512 << 10} {
		for _, unread := range []bool{false, true} {
			cases = append(cases, firstLarge(n, unread))
		}
	}
	for _, closeWrite := range []bool{false, true} {
		cases = append(cases, lingers(0, closeWrite), lingers(5, closeWrite))
	}
	return append(cases, parkedWrite(false), parkedWrite(true), parkedBoth(), resetHalfClosed(),
		closedRead())
}

// titled is a name of a case with unread data or without.
func titled(name string, unread bool) string {
	if unread {
		return name + ", unread"
	}
	return name
}

// ending is what a witness reads in the end.
func ending(unread bool) error {
	if unread {
		return syscall.ECONNRESET
	}
	return io.EOF
}

// writesUntil writes until there is an error, which has to be that one.
func (w *witness) writesUntil(want error) {
	w.Helper()
	var err error
	for err == nil {
		_, err = w.Write(zeros(1))
	}
	w.is("write", want, err)
}

// lines writes n short lines, and ends.
func (a *actor) lines(n int) {
	a.write(7*n, 7)
}

// allRead: an actor that has read everything leaves no unread data, however much that was.
func allRead(n int) endCase {
	return endCase{
		name: fmt.Sprintf("all %d bytes read", n),
		ways: allWays,
		actor: func(a *actor) {
			a.read(n)
			a.lines(5)
			a.end()
		},
		witness: func(w *witness) {
			w.writes(n, nil)
			w.reads(100, 35, io.EOF)
			w.gone()
			w.writes(1, nil)
			w.writesUntil(syscall.EPIPE)
		},
	}
}

// writesFirst: who writes first is told by Write, and then reads everything, and an end.
func writesFirst(unread bool, lines int) endCase {
	return endCase{
		name: titled(fmt.Sprintf("writes before it reads %d lines", lines), unread),
		ways: allWays,
		actor: func(a *actor) {
			if unread {
				a.unread()
			}
			a.lines(lines)
			a.hand()
			a.end()
		},
		witness: func(w *witness) {
			if unread {
				w.writes(8, nil)
			}
			w.gone()
			if unread {
				w.writesUntil(syscall.ECONNRESET)
			} else {
				w.writesUntil(syscall.EPIPE)
			}
			w.writes(1, syscall.EPIPE)
			w.reads(100, 7*lines, io.EOF)
			w.writes(1, syscall.EPIPE)
		},
	}
}

// pastDeadline: a deadline that has passed hides the end, and loses nothing.
func pastDeadline(unread bool) endCase {
	return endCase{
		name: titled("past deadline", unread),
		ways: allWays,
		actor: func(a *actor) {
			if unread {
				a.unread()
			}
			a.lines(5)
			a.wait()
			a.end()
		},
		witness: func(w *witness) {
			if unread {
				w.writes(8, nil)
			}
			require.NoError(w, w.SetDeadline(past))
			w.goOn()
			w.gone()
			w.reads(100, 0, w.opError("read", os.ErrDeadlineExceeded))
			w.writes(1, w.opError("write", os.ErrDeadlineExceeded))
			require.NoError(w, w.SetDeadline(time.Time{}))
			w.reads(100, 35, ending(unread))
			w.reads(100, 0, io.EOF)
		},
	}
}

// parkedRead: a Read that waits, with a deadline that is far, is woken.
func parkedRead(unread bool) endCase {
	return endCase{
		name: titled("parked Read", unread),
		ways: allWays,
		actor: func(a *actor) {
			if unread {
				a.unread()
			}
			a.wait()
			a.end()
		},
		witness: func(w *witness) {
			if unread {
				w.writes(8, nil)
			}
			require.NoError(w, w.SetReadDeadline(future()))
			wait := w.park(func(*script) { w.reads(100, 0, ending(unread)) })
			w.goOn()
			wait()
			w.reads(100, 0, io.EOF)
			w.gone()
			w.writesUntil(syscall.EPIPE)
		},
	}
}

// parkedWrite: a Write that waits fails, and what the actor had written can still be read. large is
// of the Write, others are many small ones.
func parkedWrite(large bool) endCase {
	name := "parked Write of many"
	if large {
		name = "parked Write of much"
	}
	return endCase{
		name: name,
		ways: allWays,
		actor: func(a *actor) {
			a.lines(5)
			a.wait()
			a.unread()
			a.end()
		},
		witness: func(w *witness) {
			require.NoError(w, w.SetWriteDeadline(future()))
			size := 1000
			if large {
				size = 64 << 20
			}
			wait := w.park(func(*script) {
				var err error
				for err == nil {
					_, err = w.Write(zeros(size))
				}
				w.is("write", syscall.ECONNRESET, err)
			})
			w.goOn()
			wait()
			w.writes(1, syscall.EPIPE)
			w.reads(100, 35, io.EOF)
			w.gone()
		},
	}
}

// parkedBoth: of a Read and a Write that wait one is told of the reset, or both, and both end.
func parkedBoth() endCase {
	return endCase{
		name: "parked Read and Write",
		ways: allWays,
		actor: func(a *actor) {
			a.wait()
			a.unread()
			a.end()
		},
		witness: func(w *witness) {
			var readErr, writeErr error
			waitWrite := w.park(func(*script) { _, writeErr = fill(w.conn) })
			waitRead := w.park(func(*script) { _, readErr = w.Read(make([]byte, 1)) })
			w.goOn()
			waitWrite()
			waitRead()
			told := 0
			if readErr != io.EOF {
				told++
				w.is("read", syscall.ECONNRESET, readErr)
			}
			if w.isOne("write", writeErr, syscall.ECONNRESET, syscall.EPIPE) == syscall.ECONNRESET {
				told++
			}
			assert.Equal(w, 1, told, "who is told of the reset")
			w.writes(1, syscall.EPIPE)
			w.reads(1, 0, io.EOF)
			w.gone()
		},
	}
}

// copies: WriteTo takes everything to the end.
func copies(unread bool) endCase {
	return endCase{
		name: titled("WriteTo", unread),
		ways: allWays,
		actor: func(a *actor) {
			if unread {
				a.unread()
			}
			a.lines(1000)
			if unread {
				a.hand()
			}
			a.end()
		},
		witness: func(w *witness) {
			if unread {
				w.writes(8, nil)
			}
			var got bytes.Buffer
			n, err := w.WriteTo(&got)
			assert.EqualValues(w, 7000, n)
			assert.True(w, bytes.Equal(got.Bytes(), pattern(7000)))
			if unread {
				assert.ErrorIs(w, err, syscall.ECONNRESET)
			} else {
				assert.NoError(w, err)
			}
			w.gone()
		},
	}
}

// halfClosed: the witness has closed for writing before.
func halfClosed(unread bool) endCase {
	return endCase{
		name: titled("half-closed", unread),
		ways: allWays,
		actor: func(a *actor) {
			if unread {
				a.unread()
			} else {
				_, err := io.ReadAll(a.conn)
				a.must(err)
			}
			a.lines(1000)
			if unread {
				a.hand()
			}
			a.end()
		},
		witness: func(w *witness) {
			w.writes(8, nil)
			require.NoError(w, w.CloseWrite())
			w.reads(1000, 7000, ending(unread))
			w.gone()
			w.reads(1, 0, io.EOF)
			w.writes(1, syscall.EPIPE)
			w.is("close", syscall.ENOTCONN, w.CloseWrite())
			w.is("close", nil, w.conn.Close())
		},
	}
}
