package sannet_test

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// closesWriteFirst: CloseWrite is the first that is told of a reset, and leaves it to Read.
func closesWriteFirst(unread bool) endCase {
	return endCase{
		name: titled("CloseWrite before it reads", unread),
		ways: allWays,
		actor: func(a *actor) {
			if unread {
				a.unread()
			}
			a.lines(5)
			a.end()
		},
		witness: func(w *witness) {
			if unread {
				w.writes(8, nil)
			}
			w.gone()
			if unread {
				var err error
				for err == nil {
					err = w.CloseWrite()
				}
				w.is("close", syscall.ENOTCONN, err)
			} else {
				w.is("close", nil, w.CloseWrite())
			}
			w.reads(100, 35, ending(unread))
			w.reads(1, 0, io.EOF)
			w.writes(1, syscall.EPIPE)
		},
	}
}

// many: all connections of a process end.
func many(unread bool) endCase {
	return endCase{
		name:  titled("many connections", unread),
		ways:  allWays,
		conns: 20,
		actor: func(a *actor) {
			for _, c := range a.conns {
				if unread {
					_, err := c.Read(make([]byte, 1))
					a.must(err)
				}
			}
			for i := range 10 {
				for _, c := range a.conns {
					_, err := c.Write(pattern(70)[7*i:][:7])
					a.must(err)
				}
			}
			a.end()
		},
		witness: func(w *witness) {
			if unread {
				for _, c := range w.conns {
					_, err := c.Write(zeros(8))
					require.NoError(w, err)
				}
			}
			for i, c := range w.conns {
				if i == len(w.conns)/2 {
					w.gone()
				}
				w.conn = c
				w.reads(100, 70, ending(unread))
				w.reads(1, 0, io.EOF)
			}
		},
	}
}

// firstLarge: the first Write after the end is taken as a whole, if it is of 512 KiB at most: Linux
// looks for the reset that it causes only then.
func firstLarge(n int, unread bool) endCase {
	return endCase{
		name: titled(fmt.Sprintf("a first Write of %d bytes", n), unread),
		ways: allWays,
		actor: func(a *actor) {
			a.lines(5)
			a.end()
		},
		witness: func(w *witness) {
			if !unread {
				w.reads(100, 35, io.EOF)
			}
			w.gone()
			w.writes(n, nil)
			w.writesUntil(syscall.EPIPE)
			w.writes(n, syscall.EPIPE)
			if unread {
				w.reads(100, 35, io.EOF)
			}
			w.reads(100, 0, io.EOF)
		},
	}
}

// lingers: SetLinger(0) makes every end a reset that discards. Others change nothing here.
func lingers(sec int, closeWrite bool) endCase {
	name := fmt.Sprintf("SetLinger(%d)", sec)
	if closeWrite {
		name += ", CloseWrite"
	}
	return endCase{
		name: name,
		ways: allWays,
		actor: func(a *actor) {
			a.must(a.SetLinger(sec))
			a.lines(5)
			if closeWrite {
				a.must(a.CloseWrite())
			}
			a.end()
		},
		witness: func(w *witness) {
			if sec == 0 && !closeWrite {
				n, err := w.readsAll(100)
				assert.LessOrEqual(w, n, 35)
				w.is("read", syscall.ECONNRESET, err)
			} else {
				w.reads(100, 35, io.EOF)
			}
			w.gone()
			if sec != 0 {
				w.writes(1, nil)
			}
			w.writesUntil(syscall.EPIPE)
			w.reads(1, 0, io.EOF)
		},
	}
}

// resetHalfClosed: who has closed for writing is told of a reset by Write, if that is the first to
// be called.
func resetHalfClosed() endCase {
	return endCase{
		name: "half-closed, writes before it reads, unread",
		ways: allWays,
		actor: func(a *actor) {
			a.unread()
			a.lines(5)
			a.wait()
			a.end()
		},
		witness: func(w *witness) {
			w.writes(8, nil)
			require.NoError(w, w.CloseWrite())
			w.writes(1, syscall.EPIPE)
			w.goOn()
			w.gone()
			// Until the reset is here.
			var err error = syscall.EPIPE
			for start := time.Now(); errors.Is(err, syscall.EPIPE) && time.Since(start) < stuck/10; {
				_, err = w.Write(zeros(1))
			}
			w.is("write", syscall.ECONNRESET, err)
			w.writes(1, syscall.EPIPE)
			w.reads(100, 35, io.EOF)
			w.is("close", syscall.ENOTCONN, w.CloseWrite())
		},
	}
}

// closedRead: CloseRead does not make unread data read.
func closedRead() endCase {
	return endCase{
		name: "CloseRead, unread",
		ways: allWays,
		actor: func(a *actor) {
			a.unread()
			a.must(a.CloseRead())
			a.lines(5)
			a.end()
		},
		witness: func(w *witness) {
			w.writes(8, nil)
			w.reads(100, 35, syscall.ECONNRESET)
			w.reads(100, 0, io.EOF)
			w.gone()
		},
	}
}
