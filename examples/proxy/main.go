// Proxy forwards connections from TCP to a SAN and from a SAN to TCP, so that programs in any language can use a SAN
// between hosts: one proxy beside the clients, another beside the server.
//
//	go run ./examples/proxy -listen tcp:127.0.0.1:6380 -to san:10.0.0.2:6400    on the clients' host
//	go run ./examples/proxy -listen san:10.0.0.2:6400 -to tcp:127.0.0.1:6379    on the server's host
//
// An address begins with how to get there: tcp for TCP alone, san for the SAN or failure, auto for the SAN where it
// works and TCP where not. Several pairs of -listen and -to make several forwards in one process:
//
//	go run ./examples/proxy -listen tcp:127.0.0.1:6380 -to san:127.0.0.1:6400 \
//		-listen san:127.0.0.1:6400 -to tcp:127.0.0.1:6379
//
// The end of input in one direction, and a reset, pass through. On SIGTERM or an interrupt the proxy accepts no more, lets
// the connections finish, and exits with 0; a second signal ends it at once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	forwards []forward
	drain    time.Duration // how long connections may take to finish at the end
	timeout  time.Duration // of a dial
}

func main() {
	o, err := parse(os.Args[1:], os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "proxy: %v (-help shows the flags)\n", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // from then on a signal has its usual effect
	if err := run(ctx, o, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "proxy:", err)
		os.Exit(1)
	}
}

// parse makes options of the arguments. Asked for help it writes that to out, and fails with flag.ErrHelp.
func parse(args []string, out io.Writer) (o options, err error) {
	var froms, tos []endpoint
	endpoints := func(to *[]endpoint) func(string) error {
		return func(s string) error {
			e, err := parseEndpoint(s)
			*to = append(*to, e)
			return err
		}
	}
	f := flag.NewFlagSet("proxy", flag.ContinueOnError)
	f.Func("listen", "`address` to listen on: tcp:HOST:PORT, san:HOST:PORT or auto:HOST:PORT", endpoints(&froms))
	f.Func("to", "`address` to connect to for the -listen at the same place in the order", endpoints(&tos))
	f.DurationVar(&o.drain, "drain", 30*time.Second, "how long connections may take to finish after SIGTERM")
	f.DurationVar(&o.timeout, "timeout", 10*time.Second, "how long connecting may take")
	f.SetOutput(io.Discard)
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			f.SetOutput(out)
			f.Usage()
		}
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case len(froms) == 0:
		return o, errors.New("-listen and -to are needed")
	case len(froms) != len(tos):
		return o, fmt.Errorf("%d times -listen, but %d times -to", len(froms), len(tos))
	case o.drain < 0:
		return o, errors.New("-drain must not be negative")
	case o.timeout <= 0:
		return o, errors.New("-timeout must be positive")
	case slices.ContainsFunc(tos, func(e endpoint) bool { return strings.HasSuffix(e.address, ":0") }):
		return o, errors.New("-to needs a port")
	}
	for i := range froms {
		o.forwards = append(o.forwards, forward{froms[i], tos[i]})
	}
	return o, nil
}

// endpoint is where to listen or to connect.
type endpoint struct {
	kind    string // tcp, san or auto
	address string
}

func parseEndpoint(s string) (endpoint, error) {
	kind, address, _ := strings.Cut(s, ":")
	if kind != "tcp" && kind != "san" && kind != "auto" {
		return endpoint{}, errors.New("must be tcp:HOST:PORT, san:HOST:PORT or auto:HOST:PORT")
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return endpoint{}, err
	}
	return endpoint{kind, address}, nil
}

func (e endpoint) String() string { return e.kind + ":" + e.address }
