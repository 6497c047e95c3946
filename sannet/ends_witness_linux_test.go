package sannet_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/sannet"
)

// witness is the end that is left.
type witness struct {
	*script
	conn
	wire
	conns   []conn // the first is conn
	network string
	role    string
	way     way
	watch   *time.Timer    // ends a case that hangs
	words   chan [2]string // that the actor has said
	process *process       // nil: the actor runs in this one
}

// listenTo takes the actor's words, and kills it where it asks for that.
func (w *witness) listenTo() {
	w.words = make(chan [2]string, 1000)
	go func() {
		defer close(w.words)
		for {
			word, arg, err := w.hear()
			if err != nil {
				return
			}
			switch word {
			case wordKill:
				w.process.cmd.Process.Kill()
				continue
			case wordStop:
				w.process.stop()
			}
			w.words <- [2]string{word, arg}
		}
	}()
}

func newWitness(t *testing.T, p endPath, way way) *witness {
	w := &witness{script: &script{T: t, names: new(names)}, network: p.network, way: way}
	w.watch = time.AfterFunc(stuck, w.hangs)
	t.Cleanup(func() { w.watch.Stop() })
	return w
}

// hangs tells where both ends are, and makes the witness go on.
func (w *witness) hangs() {
	buf := make([]byte, 1<<20)
	w.Errorf("the case hangs\n%s", buf[:runtime.Stack(buf, true)])
	if w.process != nil {
		w.process.cmd.Process.Signal(syscall.SIGQUIT) // tells likewise
	}
	for _, c := range w.conns {
		c.Close()
	}
}

// keep closes connections at the end of the test.
func (w *witness) keep(cs ...net.Conn) {
	w.Cleanup(func() {
		for _, c := range cs {
			c.Close()
		}
	})
}

// goOn lets the actor go on.
func (w *witness) goOn() {
	w.Helper()
	require.NoError(w, w.say(wordGo, 0))
}

// told returns what the actor tells.
func (w *witness) told() (n int) {
	w.Helper()
	said := soon(w.T, w.words)
	require.Equal(w, wordTell, said[0])
	_, err := fmt.Sscan(said[1], &n)
	require.NoError(w, err)
	return n
}

// gone returns once the actor's end is closed, or its process has ended.
func (w *witness) gone() {
	w.Helper()
	said := soon(w.T, w.words)
	if w.process != nil && said[0] == "" {
		w.process.ended()
	} else {
		require.Equal(w, wordGone, said[0])
	}
	// A kernel tells its sockets at once. A SAN takes a moment.
	for _, c := range w.conns {
		if c, ok := c.(*sannet.Conn); ok {
			require.Eventually(w, func() bool { return sannet.PeerGone(c) }, time.Minute, time.Millisecond)
		}
	}
}

// reads reads to the end, with a buffer of that size, and checks that the first n bytes of the
// pattern come, and then err.
func (w *witness) reads(buffer, n int, err error) {
	w.Helper()
	got, gotErr := w.readsAll(buffer)
	assert.Equal(w, n, got, "bytes read")
	w.is("read", err, gotErr)
}

// readsAll is reads that returns how many came, and the error.
func (w *witness) readsAll(buffer int) (n int, err error) {
	w.Helper()
	return w.readsFrom(0, buffer)
}

// readsFrom is readsAll where n have come before.
func (w *witness) readsFrom(n, buffer int) (int, error) {
	w.Helper()
	b := make([]byte, buffer)
	for {
		m, err := w.Read(b)
		if !bytes.Equal(b[:m], pattern(n + m)[n:]) {
			w.Errorf("other bytes at %d", n)
		}
		n += m
		if err != nil {
			return n, err
		}
	}
}

// writes writes n bytes and checks the error: nil is for all n, and others for none.
func (w *witness) writes(n int, err error) {
	w.Helper()
	m, gotErr := w.Write(zeros(n))
	if err == nil {
		assert.Equal(w, n, m, "bytes written")
	} else {
		assert.Zero(w, m, "bytes written")
	}
	w.is("write", err, gotErr)
}

// is checks that an error is what net gives for one of this connection.
func (w *witness) is(op string, want, err error) {
	w.Helper()
	if errno, ok := want.(syscall.Errno); ok {
		want = w.error(op, errno)
	}
	assert.Equal(w, want, err)
}

// error returns what net gives for an error of this connection.
func (w *witness) error(op string, errno syscall.Errno) error {
	call := op
	if op == "close" {
		call = "shutdown"
	}
	return w.opError(op, os.NewSyscallError(call, errno))
}

func (w *witness) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: w.network, Source: w.LocalAddr(), Addr: w.RemoteAddr(), Err: err}
}

// isOne checks that an error is what net gives for one of these, and returns which.
func (w *witness) isOne(op string, err error, wants ...syscall.Errno) syscall.Errno {
	w.Helper()
	for _, want := range wants {
		if errors.Is(err, want) {
			w.is(op, want, err)
			return want
		}
	}
	require.Failf(w, "another error", "%v", err)
	return 0
}
