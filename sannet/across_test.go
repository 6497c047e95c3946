package sannet_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"sansock/emu"
	"sansock/provider"
	"sansock/sannet"
	sanswitch "sansock/switch"
)

// childEnv makes this program the other process of a test.
const childEnv = "SANNET_TEST_CHILD"

// child is the other process, which serves the methods of childRoot.
type child struct {
	*link
	cmd  *exec.Cmd
	gone bool // it has ended by itself, or was killed
}

// startChild starts a child, which ends with the test and checks then that no goroutine is left in it.
func startChild(t testing.TB) *child {
	t.Helper()
	return startChildWith(t, func(*exec.Cmd) {})
}

// startChildWith is startChild with a command that is changed.
func startChildWith(t testing.TB, change func(*exec.Cmd)) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), childEnv+"=1")
	c.cmd.Stderr = os.Stderr
	change(c.cmd)
	in, err := c.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())
	c.link = newLink(in, nil)
	served := make(chan struct{})
	go func() {
		c.serve(out)
		close(served)
	}()
	t.Cleanup(func() {
		in.Close()
		<-served
		if err := c.cmd.Wait(); !c.gone {
			assert.NoError(t, err, "the other process")
		}
	})
	return c
}

// childMain is the program of the other process.
func childMain() int {
	p, err := emu.New(emu.Config{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	sw := sanswitch.New(sanswitch.Config{Providers: []provider.Provider{p}})
	newLink(os.Stdout, &childRoot{sw}).serve(os.Stdin)
	sw.Close()
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// childRoot is what a child does.
type childRoot struct{ sw *sanswitch.Switch }

// Listen listens in the child: on plain TCP, or on the SAN too.
func (r *childRoot) Listen(san bool, network, address string) (net.Listener, error) {
	if !san {
		return net.Listen(network, address)
	}
	return listenWith(r.sw)(network, address)
}

// AtRest reports whether every other call in the child waits for something.
func (r *childRoot) AtRest() bool { return atRest() }

// Leave waits for a connection, writes that many times n bytes, closes the connection if closed, and ends the process.
func (r *childRoot) Leave(san bool, times, n int, closed bool) (net.Addr, error) {
	l, err := r.Listen(san, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		c, err := l.Accept()
		for range times {
			if err == nil {
				_, err = c.Write(make([]byte, n))
			}
		}
		if err == nil && closed {
			err = c.Close()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}()
	return l.Addr(), nil
}

// Exhaust leaves the child without descriptors, or gives it back what it had.
func (r *childRoot) Exhaust(on bool) error { return exhaust(on) }

// listen has the child listen.
func (c *child) listen(san bool, network, address string) (net.Listener, error) {
	v := c.call(0, "Listen", san, network, address)
	if err := v[1].(wireError).error(); err != nil {
		return nil, err
	}
	return &remoteListener{remoteConn{stream: stream{c.link, v[0].(ref).ID}}}, nil
}

// atRest reports whether all calls over links in this process, except the caller's own, wait.
func atRest() bool {
	buf := make([]byte, 1<<20)
	for i, stack := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		// The first is the caller.
		if i > 0 && strings.Contains(stack, handlerMark) && !waits(stack[strings.Index(stack, "[")+1:]) {
			return false
		}
	}
	return true
}

// acrossPath runs over the emulated SAN between two processes, of which the other one listens.
func acrossPath(t testing.TB, c *child) path {
	sw := newSwitch(t, true)
	listen := func(network, address string) (net.Listener, error) {
		if !strings.HasPrefix(network, "tcp") {
			return listenWith(sw)(network, address) // goes to net
		}
		return c.listen(true, network, address)
	}
	dial := func(ctx context.Context, d sannet.Dialer, network, address string) (net.Conn, error) {
		return dialWith(sw)(ctx, d, network, address)
	}
	rest := func() bool { return c.call(0, "AtRest")[0].(bool) && atRest() }
	return path{name: "across", listen: listen, dialWith: dial, rest: rest}
}
