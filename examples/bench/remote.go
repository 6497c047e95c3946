package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"sansock/sannet"
)

const (
	startTimeout = 10 * time.Second // for a server to answer first
	askTimeout   = 10 * time.Second // for an answer on the control connection
)

// runServer serves at the address until ctx ends. One listener takes both carriers: a connection over TCP is the same
// from sannet's as from net's.
func runServer(ctx context.Context, address string, stdout io.Writer) error {
	l, err := sannet.Listen("tcp", address)
	if err != nil {
		return err
	}
	s := newServer()
	defer s.close()
	s.serve(l)
	fmt.Fprintln(stdout, "serving", l.Addr())
	<-ctx.Done()
	return nil
}

// remoteRig returns a rig whose server runs with -serve at the address.
func remoteRig(ctx context.Context, address, network string) (*rig, error) {
	var d net.Dialer
	tcp := carrier{"tcp", func(ctx context.Context) (net.Conn, error) { return d.DialContext(ctx, "tcp", address) }}
	peer, err := dialControl(ctx, tcp)
	if err != nil {
		return nil, fmt.Errorf("-to %s: %w", address, err)
	}
	return &rig{
		mode:  modeRemote,
		title: "peer at " + address,
		carriers: []carrier{tcp, {"sannet", func(ctx context.Context) (net.Conn, error) {
			return sannet.DialContext(ctx, network, address)
		}}},
		peer: peer,
		stop: peer.close,
	}, nil
}

// twoProcesses returns a rig whose server is this program once more.
func twoProcesses(ctx context.Context, network string) (*rig, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	var a addresses
	child, err := start(ctx, errand{Dir: dir}, &a)
	if err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("server in a process of its own: %w", err)
	}
	stop := func() { child.end(); os.RemoveAll(dir) }
	carriers := a.carriers(network)
	tcp := slices.IndexFunc(carriers, func(c carrier) bool { return c.name == "tcp" })
	peer, err := dialControl(ctx, carriers[tcp])
	if err != nil {
		stop()
		return nil, fmt.Errorf("server in a process of its own: %w", err)
	}
	return &rig{
		mode:     modeTwo,
		title:    "two processes",
		carriers: carriers,
		peer:     peer,
		stop:     func() { peer.close(); stop() },
	}, nil
}

// ask is a question about the other process.
type ask byte

const (
	askCPU    ask = iota + 1 // CPU time alone, at little cost
	askAll                   // everything, garbage not counted
	askSettle                // CPU time, when the connections of earlier measurements are gone
)

// control is a connection to ask a server on.
type control struct {
	mu  sync.Mutex // one question at a time
	c   net.Conn
	dec *json.Decoder
}

func dialControl(ctx context.Context, via carrier) (*control, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	c, err := via.dial(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if err := greet(c, jobControl, 0); err != nil {
		c.Close()
		if ctx.Err() != nil {
			err = errors.New("no answer to the hello: is it a bench server?")
		}
		return nil, err
	}
	return &control{c: c, dec: json.NewDecoder(bufio.NewReader(c))}, nil
}

func (c *control) usage(a ask) (u usage, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.c.SetDeadline(time.Now().Add(askTimeout))
	if _, err = c.c.Write([]byte{byte(a)}); err == nil {
		err = c.dec.Decode(&u)
	}
	if err != nil {
		return u, fmt.Errorf("control connection: %w", err)
	}
	return u, nil
}

func (c *control) close() { c.c.Close() }

// serveControl answers until the client goes.
func (s *server) serveControl(c net.Conn) {
	question := make([]byte, 1)
	enc := json.NewEncoder(c)
	for {
		if _, err := io.ReadFull(c, question); err != nil {
			return
		}
		a := ask(question[0])
		if a == askSettle {
			s.settle()
		}
		if err := enc.Encode(ownUsage(a)); err != nil {
			return
		}
	}
}
