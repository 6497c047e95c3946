// Httpserver is a web server and a client of it, over the SAN or over TCP, with HTTP/1.1 or with HTTP/2 over TLS.
//
//	go run ./examples/httpserver                                 both in one process
//	go run ./examples/httpserver -tls                            likewise, with HTTP/2
//	go run ./examples/httpserver -mode server -addr :8080        only the server, until interrupted
//	go run ./examples/httpserver -mode client -addr localhost:8080
//	curl http://localhost:8080/                                  is served too, over TCP
//	SANNET_PROVIDERS=none go run ./examples/httpserver           over TCP alone
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"sansock/sannet"
)

// options are the flags.
type options struct {
	mode     string
	addr     string
	network  string
	tls      bool
	cert     string
	requests int
}

func main() {
	var o options
	flag.StringVar(&o.mode, "mode", "both", "server, client, or `both` in one process")
	flag.StringVar(&o.addr, "addr", "127.0.0.1:0", "`address` to listen on, or to connect to")
	flag.StringVar(&o.network, "net", "tcp", "`network`: tcp takes the SAN where it can, san takes it or fails")
	flag.BoolVar(&o.tls, "tls", false, "HTTP/2 over TLS instead of HTTP/1.1, with a certificate made for the occasion")
	flag.StringVar(&o.cert, "cert", "", "`file` with that certificate, which the server writes and the client trusts")
	flag.IntVar(&o.requests, "requests", 0, "`number` of requests after which to end; 0: 3 for a client, no end for a server")
	flag.Parse()
	if err := o.check(); err != nil {
		fmt.Fprintln(os.Stderr, "httpserver:", err)
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "httpserver:", err)
		os.Exit(1)
	}
}

// check reports what is wrong with the flags.
func (o options) check() error {
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	case o.mode != "server" && o.mode != "client" && o.mode != "both":
		return fmt.Errorf("-mode must be server, client or both, not %q", o.mode)
	case o.network != "tcp" && o.network != "san":
		return fmt.Errorf("-net must be tcp or san, not %q", o.network)
	case o.requests < 0:
		return errors.New("-requests must not be negative")
	case o.cert != "" && !o.tls:
		return errors.New("-cert needs -tls")
	case o.mode == "client" && o.tls && o.cert == "":
		return errors.New("-mode client -tls needs -cert, the file that the server wrote")
	}
	host, port, err := net.SplitHostPort(o.addr)
	if err != nil {
		return fmt.Errorf("-addr: %w", err)
	}
	if o.mode == "client" && (host == "" || port == "0") {
		return errors.New("-mode client needs -addr with the server's host and port")
	}
	return nil
}

func run(ctx context.Context, o options) error {
	if o.mode == "client" {
		return runClient(ctx, o, nil)
	}
	l, err := o.listen(ctx)
	if err != nil {
		return err
	}
	if o.mode == "server" {
		return runServer(ctx, o, l)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return runBoth(ctx, cancel, o, l)
}

// listen and dial are all that there is of sannet in a program.
func (o options) listen(ctx context.Context) (net.Listener, error) {
	return new(sannet.ListenConfig).Listen(ctx, o.network, o.addr)
}

func (o options) dial(ctx context.Context, _, address string) (net.Conn, error) {
	return sannet.DialContext(ctx, o.network, address)
}

// pathOf describes a connection's path.
func pathOf(c net.Conn) string {
	info, _ := sannet.InfoOf(c)
	return info.String()
}
