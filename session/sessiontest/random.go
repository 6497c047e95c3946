// Package sessiontest uses sessions at random, for the tests of providers and of package session.
package sessiontest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"sansock/session"
)

// Traffic is what the two ends of a session do at random: they write sizes from nothing up, with and without deadlines, read
// in pieces of any size, half-close, drop and close. The same seed gives the same decisions.
type Traffic struct {
	Seed    uint64
	Largest int  // of a Write, in bytes
	Budget  int  // of each direction, in bytes, give or take a Write
	Faulty  bool // the provider fails at times, so that connections may end at any time

	// End is what each end does before its stream is over: "close", "drop", "close read", "close write", or "" for nothing.
	End [2]string
}

// New returns the traffic of a seed and what its session is configured as, apart from faults.
func New(seed uint64, largest, budget int) (*Traffic, session.Config) {
	r := rand.New(rand.NewPCG(seed, 2))
	w := &Traffic{Seed: seed, Largest: largest, Budget: budget}
	for i := range w.End {
		if r.IntN(3) == 0 {
			w.End[i] = []string{"close", "drop", "close read", "close write"}[r.IntN(4)]
		}
	}
	return w, session.Config{ReadBuffer: 4<<10 + r.IntN(1<<r.IntN(22)), Threshold: []int{0, 0, -1, 1, 5000}[r.IntN(5)]}
}

// end is one end.
type end struct {
	c          *session.Conn
	moved      *atomic.Uint64 // bytes read at all ends of this process, to tell slow from stuck
	acted      atomic.Bool    // it has closed or dropped something before its time
	deaf       bool           // CloseRead
	sent       uint64
	got        uint64
	wErr, rErr error // that ended writing and reading
}

// Result is what an end has come to. It can be passed between processes as JSON.
type Result struct {
	Sent, Got  uint64 // bytes written and read
	Acted      bool   // it has closed or dropped something before its time
	Deaf       bool   // it has closed reading
	WriteError string // that ended writing, "" if none did
	ReadError  string // that ended reading: always one
}

// Run lets the ends do so, compares the streams with what was written, byte by byte, and closes both.
func (w *Traffic) Run(t testing.TB, conns [2]*session.Conn) {
	var results [2]Result
	moved := new(atomic.Uint64)
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Go(func() { results[i] = w.run(t, c, i, moved) })
	}
	wg.Wait()
	w.Compare(t, results)
	for _, c := range conns {
		c.Close()
	}
}

// RunEnd is Run for end i alone, where the other one is in another process. The caller compares the results, and closes
// the connection once both ends have one.
func (w *Traffic) RunEnd(t assert.TestingT, c *session.Conn, i int) Result {
	return w.run(t, c, i, new(atomic.Uint64))
}

func (w *Traffic) run(t assert.TestingT, c *session.Conn, i int, moved *atomic.Uint64) Result {
	e := &end{c: c, moved: moved}
	var wg sync.WaitGroup
	wg.Go(func() { w.writer(t, e, i) })
	wg.Go(func() { w.reader(t, e, i) })
	wg.Wait()
	return Result{e.sent, e.got, e.acted.Load(), e.deaf, text(e.wErr), text(e.rErr)}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Compare compares the results of the two ends.
func (w *Traffic) Compare(t assert.TestingT, ends [2]Result) {
	eof := io.EOF.Error()
	for i, e := range ends {
		o := ends[1-i]
		undisturbed := !w.Faulty && !e.Acted && !o.Acted
		if undisturbed {
			assert.Empty(t, e.WriteError, "end %d", i)
			assert.Equal(t, eof, e.ReadError, "end %d", i)
		}
		// The end of the stream is told truthfully, unless it is only what is left of a broken connection.
		if undisturbed || e.ReadError == eof && e.WriteError == "" && o.WriteError == "" && !e.Acted && !o.Deaf {
			assert.Equal(t, o.Sent, e.Got, "end %d", i)
		}
		assert.LessOrEqual(t, e.Got, o.Sent+uint64(w.Largest))
	}
}

// patience is how long nothing may move.
const patience = time.Minute

func (w *Traffic) size(r *rand.Rand) int {
	n := []int{1, 100, 5000, 20_000, 100_000, 1 << 20, w.Largest}[r.IntN(7)]
	if r.IntN(20) == 0 {
		return 0
	}
	return r.IntN(min(n, w.Largest) + 1)
}

// deadline is what an operation gets: far away, near, or past.
func (w *Traffic) deadline(r *rand.Rand) (at time.Time, far bool) {
	switch r.IntN(10) {
	case 0:
		return time.Now().Add(-time.Second), false
	case 1, 2, 3:
		return time.Now().Add(time.Duration(r.IntN(5000)) * time.Microsecond), false
	}
	return time.Now().Add(patience), true
}

func (w *Traffic) writer(t assert.TestingT, e *end, i int) {
	r := rand.New(rand.NewPCG(w.Seed, uint64(10+i)))
	act := r.IntN(w.Budget)
	var b []byte
	for int(e.sent) < w.Budget {
		if w.End[i] != "" && int(e.sent) >= act {
			e.acted.Store(true)
			switch w.End[i] {
			case "close":
				e.c.Close()
			case "drop":
				e.c.SetLinger(0)
				e.c.Close()
			case "close read":
				e.deaf = true
				e.c.CloseRead()
			case "close write":
				e.c.CloseWrite()
			}
			w.End[i] = ""
		}
		n := w.size(r)
		if n > len(b) {
			b = make([]byte, n)
		}
		at, far := w.deadline(r)
		moved := e.moved.Load()
		e.c.SetWriteDeadline(at)
		var m int
		var err error
		if r.IntN(6) == 0 {
			var buf *session.Buffer
			if buf, err = e.c.NewBuffer(n); err == nil {
				PutPattern(buf.Bytes(), e.sent)
				m, err = e.c.WriteBuffer(buf, n)
			}
		} else {
			PutPattern(b[:n], e.sent)
			m, err = e.c.Write(b[:n])
			clear(b[:n])
		}
		assert.True(t, m >= 0 && m <= n && (err != nil || m == n))
		e.sent += uint64(m)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if !assert.False(t, far && moved == e.moved.Load(), "end %d: a Write of %d bytes hangs", i, n) || !assert.False(t, time.Now().Before(at)) {
				e.c.Close()
				return
			}
			continue
		}
		if err != nil {
			e.wErr = err
			break
		}
	}
	if err := e.c.CloseWrite(); err != nil && e.wErr == nil {
		e.wErr = err
	}
}

func (w *Traffic) reader(t assert.TestingT, e *end, i int) {
	r := rand.New(rand.NewPCG(w.Seed, uint64(20+i)))
	var b []byte
	for {
		at, far := w.deadline(r)
		moved := e.moved.Load()
		e.c.SetReadDeadline(at)
		var p []byte
		var n int
		var err error
		if r.IntN(8) == 0 {
			var buf *session.Buffer
			if buf, err = e.c.ReadBuffer(); err == nil {
				p = append([]byte(nil), buf.Bytes()...)
				n = len(p)
				buf.Release()
			}
		} else {
			if n = w.size(r) + 1; n > len(b) {
				b = make([]byte, n)
			}
			p = b[:n]
			n, err = e.c.Read(p)
		}
		ok := assert.True(t, IsPattern(p[:n], e.got), "end %d: wrong bytes behind %d", i, e.got)
		e.got += uint64(n)
		e.moved.Add(uint64(n))
		clear(p)
		if !ok {
			e.c.Close()
			e.rErr = err
			return
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if !assert.False(t, far && moved == e.moved.Load(), "end %d: a Read hangs behind %d", i, e.got) || !assert.False(t, time.Now().Before(at)) {
				e.c.Close()
				return
			}
			continue
		}
		if err != nil {
			e.rErr = err
			if err == net.ErrClosed {
				assert.True(t, e.acted.Load())
			}
			return
		}
	}
}

// PutPattern fills b with the bytes of a stream from pos on: every eighth byte begins the place of its word.
func PutPattern(b []byte, pos uint64) {
	for i := 0; i < len(b); {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], (pos+uint64(i))/8*0x9E3779B97F4A7C15)
		i += copy(b[i:], word[(pos+uint64(i))%8:])
	}
}

// IsPattern reports whether b is what PutPattern puts at pos.
func IsPattern(b []byte, pos uint64) bool {
	for i := 0; i < len(b); {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], (pos+uint64(i))/8*0x9E3779B97F4A7C15)
		w := word[(pos+uint64(i))%8:]
		n := min(len(w), len(b)-i)
		if !bytes.Equal(b[i:i+n], w[:n]) {
			return false
		}
		i += n
	}
	return true
}
