package sannet_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"sansock/provider"
	"sansock/sannet"
	sanswitch "sansock/switch"
)

// The programs of this file, by the value of childEnv, and what the actor's has to do.
const (
	childActs  = "acts"
	childIdles = "idles"
	actEnv     = "SANNET_TEST_ACT"
)

func init() {
	childMains[childActs] = actMain
	childMains[childIdles] = idleMain
}

// act is what an actor's process has to do.
type act struct {
	Case, Path string
	Way        way
	Dial       string // address to dial; empty: the actor listens
}

// process is that of an actor.
type process struct {
	w      *witness
	way    way
	cmd    *exec.Cmd
	stderr bytes.Buffer
	waited bool
}

// startProcess runs the actor in a process of its own, and connects with it.
func (w *witness) startProcess(p endPath, c endCase, way way) {
	a := act{Case: c.name, Path: p.name, Way: way}
	end := openEnd(w, p.name)
	var l net.Listener
	if w.role == "listens" {
		w.startAct(a)
		said := soon(w.T, w.words)
		require.Equal(w, wordAt, said[0])
		a.Dial = said[1]
	} else {
		var err error
		l, err = end.listen(p.network, "127.0.0.1:0")
		require.NoError(w, err)
		defer l.Close()
		a.Dial = l.Addr().String()
		w.startAct(a)
	}
	for range c.conns {
		c, err := end.connect(l, p.network, a.Dial)
		require.NoError(w, err)
		w.keep(c)
		w.conns = append(w.conns, c.(conn))
	}
}

// connect accepts from l, or dials if that is nil.
func (e end) connect(l net.Listener, network, address string) (net.Conn, error) {
	if l != nil {
		l.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Now().Add(stuck))
		return l.Accept()
	}
	return e.dial(context.Background(), sannet.Dialer{Timeout: stuck}, network, address)
}

// startAct starts the process.
func (w *witness) startAct(a act) {
	what, err := json.Marshal(a)
	require.NoError(w, err)
	p := &process{w: w, way: a.Way, cmd: exec.Command(os.Args[0])}
	// A program of the race detector's waits for a second before it exits.
	p.cmd.Env = append(os.Environ(), childEnv+"="+childActs, actEnv+"="+string(what),
		"GORACE=atexit_sleep_ms=0")
	p.cmd.Stderr = &p.stderr
	in, err := p.cmd.StdinPipe()
	require.NoError(w, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(w, err)
	require.NoError(w, p.cmd.Start())
	w.process, w.wire = p, wire{bufio.NewReader(out), in}
	w.listenTo()
	w.Cleanup(func() {
		in.Close()
		for range w.words {
		}
		p.ended()
	})
}

// ended waits for the end of the process, and checks that it is the one that it should be.
func (p *process) ended() {
	p.w.Helper()
	if p.waited {
		return
	}
	p.waited = true
	p.cmd.Wait()
	want := "exit status 0"
	switch p.way {
	case panics:
		want = "exit status 2"
	case suicide, killed:
		want = "signal: killed"
	case termed:
		want = "signal: terminated"
	}
	assert.Equal(p.w, want, p.cmd.ProcessState.String())
	if p.w.Failed() {
		p.w.Logf("stderr of the actor's process: %s", p.stderr.Bytes())
	}
}

// stop stops the process, and returns when it is.
func (p *process) stop() {
	p.cmd.Process.Signal(syscall.SIGSTOP)
	unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WSTOPPED, nil)
}

// openEnd opens what one of two processes needs on a path.
func openEnd(w *witness, path string) end {
	open := func(san bool) *sanswitch.Switch {
		if w != nil {
			return newSwitch(w, san)
		}
		sw, err := actorSwitch(san)
		if err != nil {
			failActor(err)
		}
		return sw
	}
	switch path {
	case "across":
		sw := open(true)
		return end{listenWith(sw), dialWith(sw)}
	case "fallback":
		return end{listenWith(open(false)), dialWith(open(true))}
	}
	p := tcpPath(w)
	return end{p.listen, p.dialWith}
}

// actorSwitches are those that the actor's process has opened.
var actorSwitches []*sanswitch.Switch

func actorSwitch(san bool) (*sanswitch.Switch, error) {
	var cfg sanswitch.Config
	if san {
		p, err := openSAN()
		if err != nil {
			return nil, err
		}
		cfg.Providers = []provider.Provider{p}
	}
	sw := sanswitch.New(cfg)
	actorSwitches = append(actorSwitches, sw)
	return sw, nil
}

func failActor(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(99)
}

// actMain is the program of an actor. It returns the exit code, or a negative one to return from
// main.
func actMain() int {
	var what act
	if err := json.Unmarshal([]byte(os.Getenv(actEnv)), &what); err != nil {
		failActor(err)
	}
	a := &actor{wire: wire{bufio.NewReader(os.Stdin), os.Stdout}, way: what.Way, fatal: failActor}
	a.die = a.dies
	c := caseOf(what.Case)
	if c.conns == 0 {
		c.conns = 1
	}
	if err := a.connect(what, c.conns); err != nil {
		failActor(err)
	}
	c.actor(a)
	if !a.finished {
		return -1
	}
	io.Copy(io.Discard, os.Stdin)
	for _, sw := range actorSwitches {
		sw.Close()
	}
	if err := goleak.Find(); err != nil {
		failActor(err)
	}
	return 0
}

// caseOf returns the case of that name.
func caseOf(name string) endCase {
	if c, ok := randomCaseOf(name); ok {
		return c
	}
	var found []endCase
	for _, cases := range endCases {
		for _, c := range cases() {
			if c.name == name {
				found = append(found, c)
			}
		}
	}
	if len(found) != 1 {
		failActor(fmt.Errorf("there are %d cases %q", len(found), name))
	}
	return found[0]
}

// connect makes the actor's connections.
func (a *actor) connect(what act, conns int) (err error) {
	network := "tcp"
	if what.Path == "across" {
		network = "san"
	}
	end := openEnd(nil, what.Path)
	var l net.Listener
	if what.Dial == "" {
		if l, err = end.listen(network, "127.0.0.1:0"); err != nil {
			return err
		}
		if err = a.say(wordAt, l.Addr()); err != nil || conns < 0 {
			return err
		}
		defer l.Close()
	}
	for range conns {
		c, err := end.connect(l, network, what.Dial)
		if err != nil {
			return err
		}
		a.conns = append(a.conns, c.(conn))
	}
	a.conn = a.conns[0]
	return nil
}

// dies ends the process of the actor. Where it returns main is to return.
func (a *actor) dies(way way) {
	switch way {
	case leaves, exits:
		os.Exit(0)
	case panics:
		panic("the way to end")
	case suicide:
		syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	case termed:
		syscall.Kill(syscall.Getpid(), syscall.SIGTERM)
	case killed:
		a.say(wordKill, 0)
	case execs:
		os.Setenv(childEnv, childIdles)
		failActor(syscall.Exec(os.Args[0], os.Args, os.Environ()))
	case forks:
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childEnv+"="+childIdles)
		child.Stdin = os.Stdin // so that it ends with the test
		if err := child.Start(); err != nil {
			failActor(err)
		}
		os.Exit(0)
	case returns:
		return
	}
	select {}
}

// idleMain is what the process goes on with that has become another program.
func idleMain() int {
	fmt.Println(wordGone, 0)
	io.Copy(io.Discard, os.Stdin)
	return 0
}
