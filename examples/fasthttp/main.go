// Fasthttp is a fasthttp server and its client, over the SAN or over TCP.
//
//	go run .
//	SANNET_PROVIDERS=none go run .
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/valyala/fasthttp"

	"sansock/sannet"
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fasthttp:", err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	l, err := sannet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &fasthttp.Server{Handler: handle}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	c := newClient(func(c net.Conn) {
		info, _ := sannet.InfoOf(c)
		fmt.Fprintln(out, "path:", info)
	})
	err = requests(out, c, "http://"+l.Addr().String())
	c.CloseIdleConnections()
	return errors.Join(err, srv.Shutdown(), <-served)
}

// handle greets, and echoes what is posted.
func handle(ctx *fasthttp.RequestCtx) {
	if ctx.IsPost() {
		ctx.SetBody(ctx.PostBody())
		return
	}
	fmt.Fprintf(ctx, "hello, %v", ctx.RemoteIP())
}

// newClient returns a client that tells made about each connection.
func newClient(made func(net.Conn)) *fasthttp.Client {
	return &fasthttp.Client{
		ReadTimeout: time.Minute,
		Dial: func(addr string) (net.Conn, error) {
			c, err := sannet.DialTimeout("tcp", addr, 10*time.Second)
			if err == nil {
				made(c)
			}
			return c, err
		},
	}
}

func requests(out io.Writer, c *fasthttp.Client, url string) error {
	const rounds = 1000
	start := time.Now()
	var body []byte
	for range rounds {
		var code int
		var err error
		if code, body, err = c.Get(body[:0], url); err != nil {
			return err
		}
		if code != fasthttp.StatusOK {
			return fmt.Errorf("status %d: %s", code, body)
		}
	}
	fmt.Fprintf(out, "%s: %d requests, %v each\n", body, rounds, (time.Since(start) / rounds).Round(100*time.Nanosecond))
	return nil
}
