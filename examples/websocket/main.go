// Websocket is a web server that upgrades to WebSocket, and its client, over the SAN or over TCP.
//
//	go run .
//	SANNET_PROVIDERS=none go run .
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/coder/websocket"

	"sansock/sanhttp"
	"sansock/sannet"
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "websocket:", err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	l, err := sannet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: http.HandlerFunc(echo)}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	err = client(out, l.Addr().String())
	err = errors.Join(err, srv.Shutdown(context.Background()))
	if serr := <-served; !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	return err
}

// maxMessage is the largest message that either end takes.
const maxMessage = 16 << 20

// echo sends back every message until the client closes.
func echo(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // the client has been told
	}
	defer c.CloseNow()
	c.SetReadLimit(maxMessage)
	for {
		kind, message, err := c.Read(r.Context())
		if err != nil {
			return
		}
		if err := c.Write(r.Context(), kind, message); err != nil {
			return
		}
	}
}

// dial connects, and tells made about the connection below.
func dial(ctx context.Context, addr string, made func(net.Conn)) (*websocket.Conn, error) {
	transport := sanhttp.NewTransport(nil)
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := sannet.DialContext(ctx, network, addr)
		if err == nil {
			made(c)
		}
		return c, err
	}
	c, _, err := websocket.Dial(ctx, "ws://"+addr, &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		return nil, err
	}
	c.SetReadLimit(maxMessage)
	return c, nil
}

func client(out io.Writer, addr string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := dial(ctx, addr, func(c net.Conn) {
		info, _ := sannet.InfoOf(c)
		fmt.Fprintln(out, "path:", info)
	})
	if err != nil {
		return err
	}
	defer c.CloseNow()
	const rounds = 1000
	start := time.Now()
	for i := range rounds {
		sent := fmt.Sprintf("message %d", i)
		if err := c.Write(ctx, websocket.MessageText, []byte(sent)); err != nil {
			return err
		}
		_, got, err := c.Read(ctx)
		if err != nil {
			return err
		}
		if string(got) != sent {
			return fmt.Errorf("sent %q, got %q", sent, got)
		}
	}
	fmt.Fprintf(out, "echo: %d messages, %v each\n", rounds, (time.Since(start) / rounds).Round(100*time.Nanosecond))
	return c.Close(websocket.StatusNormalClosure, "thanks")
}
