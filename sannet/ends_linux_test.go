package sannet_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/sannet"
)

// way is how the actor of a case ends.
type way string

const (
	closes  way = "close"
	leaves  way = "close and exit"
	returns way = "return from main"
	exits   way = "exit"
	panics  way = "panic"
	suicide way = "kill itself"
	killed  way = "killed"
	termed  way = "SIGTERM"
	execs   way = "exec"
	forks   way = "exit with a child"
)

// deaths are the ways that need a process.
var deaths = []way{leaves, returns, exits, panics, suicide, killed, termed, execs, forks}

// endCase is a connection, or several, of which one end, the actor's, ends, while the other, the
// witness, asserts what TCP over loopback shows.
type endCase struct {
	name    string
	ways    []way
	conns   int          // 0 is 1, and negative none
	actor   func(*actor) // ends with end, after which it does nothing
	witness func(*witness)
}

// actor is the end that ends. It runs in a process of its own, or else in a goroutine.
type actor struct {
	conn
	wire
	conns    []conn // the first is conn
	way      way
	fatal    func(error)
	die      func(way) // nil: there is no process
	finished bool
}

// wire joins actor and witness beside their connection, with words in lines.
type wire struct {
	from *bufio.Reader
	to   io.Writer
}

// The words of a wire.
const (
	wordAt   = "at"   // the actor listens at
	wordTell = "tell" // the actor tells a number
	wordKill = "kill" // the actor asks to be killed
	wordStop = "stop" // the actor asks to be stopped
	wordGone = "gone" // the actor's end of the connection is closed, and it lives
	wordGo   = "go"   // the witness lets the actor go on
)

func (w wire) say(word string, arg any) error {
	_, err := fmt.Fprintln(w.to, word, arg)
	return err
}

func (w wire) hear() (word, arg string, err error) {
	line, err := w.from.ReadString('\n')
	word, arg, _ = strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	return word, arg, err
}

// must ends the actor, and the test, where there is an error.
func (a *actor) must(err error) {
	if err != nil {
		a.fatal(err)
	}
}

// tell lets the witness know a number.
func (a *actor) tell(n int) { a.must(a.say(wordTell, n)) }

// wait waits for the witness to call goOn.
func (a *actor) wait() {
	word, _, err := a.hear()
	if err == nil && word != wordGo {
		err = fmt.Errorf("%q from the witness", word)
	}
	a.must(err)
}

// write writes the first n bytes of the pattern, in parts of which sizes gives one after the other.
func (a *actor) write(n int, sizes ...int) {
	for done, i := 0, 0; done < n; i++ {
		m, err := a.Write(pattern(n)[done:min(done+sizes[i%len(sizes)], n)])
		a.must(err)
		done += m
	}
}

// read reads n bytes, and no more.
func (a *actor) read(n int) {
	b := make([]byte, n)
	_, err := io.ReadFull(a.conn, b)
	a.must(err)
}

// end ends the actor.
func (a *actor) end() {
	if a.way == closes || a.way == leaves {
		for _, c := range a.conns {
			a.must(c.Close())
		}
	}
	if a.way != closes {
		a.die(a.way)
		return
	}
	a.must(a.say(wordGone, 0))
	a.finished = true
}

// witness is the end that is left.
type witness struct {
	*script
	conn
	wire
	conns   []conn // the first is conn
	network string
	role    string
	way     way
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
	return &witness{script: &script{T: t, names: new(names)}, network: p.network, way: way}
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

// endPath is a way to join actor and witness.
type endPath struct {
	name    string
	network string                // "san" where the SAN must be used
	process bool                  // the actor has one of its own
	open    func(testing.TB) path // else
}

// end is what one of the two dials and listens with.
type end struct {
	listen func(network, address string) (net.Listener, error)
	dial   func(ctx context.Context, d sannet.Dialer, network, address string) (net.Conn, error)
}

// endPaths are the paths that the cases run over.
var endPaths = []endPath{
	{name: "tcp", network: "tcp", open: tcpPath},
	{name: "san", network: "san", open: sanPath},
	{name: "shm", network: "san", open: shmPath},
	{name: "tcp-across", network: "tcp", process: true},
	{name: "across", network: "san", process: true},
	{name: "fallback", network: "tcp", process: true},
}

// can reports whether actors end in this way over the path.
func (p endPath) can(w way) bool { return w == closes || p.process }

// runEnds runs the cases by path, case and way. A third of the ways is run of each case, in turn,
// and all with SANNET_TEST_ENDS=all in the environment.
func runEnds(t *testing.T, cases []endCase) {
	all := os.Getenv("SANNET_TEST_ENDS") == "all"
	for _, p := range endPaths {
		t.Run(p.name, func(t *testing.T) {
			for i, c := range cases {
				if p.name == "fallback" && !all && i%5 != 0 {
					continue // it is TCP, once connected
				}
				t.Run(c.name, func(t *testing.T) {
					for j, way := range c.ways {
						if !p.can(way) || !all && way != closes && (i/len(readers)+i+j)%3 != 0 {
							continue
						}
						role := roles[(i+j)%len(roles)]
						t.Run(string(way), func(t *testing.T) { c.run(t, p, way, role) })
					}
				})
			}
		})
	}
}

// roles are those of actors.
var roles = []string{"dials", "listens"}

// run runs a case once.
func (c endCase) run(t *testing.T, p endPath, way way, role string) {
	c.conns = max(c.conns, 1)
	w := newWitness(t, p, way)
	w.role = role
	if p.process {
		w.startProcess(p, c, way)
	} else {
		w.startActor(p, c, way)
	}
	w.conn = w.conns[0]
	c.witness(w)
}

// startActor runs the actor in this process.
func (w *witness) startActor(p endPath, c endCase, way way) {
	w.path = p.open(w)
	a := &actor{way: way}
	for range c.conns {
		client, server, err := w.connect(p.network, "127.0.0.1:0")
		require.NoError(w, err)
		w.tidy(client, server)
		if w.role == "listens" {
			client, server = server, client
		}
		a.conns = append(a.conns, client.(conn))
		w.conns = append(w.conns, server.(conn))
	}
	a.conn = a.conns[0]
	toWitness, fromActor := io.Pipe()
	toActor, fromWitness := io.Pipe()
	a.wire = wire{bufio.NewReader(toActor), fromActor}
	w.wire = wire{bufio.NewReader(toWitness), fromWitness}
	w.listenTo()
	a.fatal = func(err error) {
		w.Errorf("actor: %v", err)
		runtime.Goexit()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer fromActor.Close()
		c.actor(a)
	}()
	w.Cleanup(func() {
		toActor.CloseWithError(errors.New("the witness is gone"))
		toWitness.CloseWithError(errors.New("the witness is gone"))
		for _, c := range a.conns {
			c.Close()
		}
		<-done
	})
}
