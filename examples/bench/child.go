package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"time"
)

// errandEnv is set, to an errand in JSON, in the environment of a process of this program that a process of this
// program started.
const errandEnv = "SANSOCK_BENCH_ERRAND"

// errand is what such a process does: one of these.
type errand struct {
	Dir  string      // be a server, with a unix socket in the directory, and answer with its addresses
	Idle *idleErrand // measure, and answer with the outcome
}

// doErrand does an errand, and answers on standard output. The process ends when its standard input does: at the
// latest with the process that started it.
func doErrand(text string) error {
	var e errand
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return fmt.Errorf("%s: %w", errandEnv, err)
	}
	signal.Ignore(os.Interrupt) // a key press is for the parent, whose end this process sees
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	answer := json.NewEncoder(os.Stdout)
	if e.Idle != nil {
		os.Unsetenv(errandEnv)
		cost, err := e.Idle.run(ctx)
		if err != nil {
			return err
		}
		return answer.Encode(cost)
	}
	defer os.RemoveAll(e.Dir) // the parent, which does that too, may have been killed
	s := newServer()
	defer s.close()
	a, err := listenLocal(s, e.Dir)
	if err != nil {
		return err
	}
	if err := answer.Encode(a); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// endTimeout is how long a child may take to end when it is told to.
const endTimeout = 5 * time.Second

// child is a process on an errand.
type child struct {
	cmd *exec.Cmd
	in  io.Closer
}

// start starts a process on an errand and waits for the answer, at the longest until ctx ends.
func start(ctx context.Context, e errand, answer any) (*child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), errandEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd, in}
	stop := context.AfterFunc(ctx, func() { in.Close() })
	defer stop()
	if err := json.NewDecoder(out).Decode(answer); err != nil {
		err = fmt.Errorf("process %d gave no answer: %w", cmd.Process.Pid, err)
		return nil, errors.Join(err, c.end())
	}
	return c, nil
}

// end makes the process end, and waits for that.
func (c *child) end() error {
	c.in.Close()
	kill := time.AfterFunc(endTimeout, func() { c.cmd.Process.Kill() })
	defer kill.Stop()
	return c.cmd.Wait()
}

// runErrand does an errand in a process of its own from start to end.
func runErrand(ctx context.Context, e errand, answer any) error {
	c, err := start(ctx, e, answer)
	if err != nil {
		return err
	}
	return c.end()
}
