package sannet_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"testing"

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
		w.keep(client, server)
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
