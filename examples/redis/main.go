// Redis is a Redis server, tidwall/redcon with a map, and a Redis client, go-redis, over the SAN or over TCP.
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
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"sansock/sannet"
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "redis:", err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	l, err := sannet.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- newStore().serve(l) }()
	err = client(out, l.Addr().String())
	return errors.Join(err, l.Close(), <-served)
}

func client(out io.Writer, addr string) error {
	c := redis.NewClient(&redis.Options{
		Addr: addr,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := sannet.DialContext(ctx, network, addr)
			if err == nil {
				info, _ := sannet.InfoOf(c)
				fmt.Fprintln(out, "path:", info)
			}
			return c, err
		},
	})
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	if err := c.Set(ctx, "greeting", "hello", 0).Err(); err != nil {
		return err
	}
	greeting, err := c.Get(ctx, "greeting").Result()
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "greeting:", greeting)

	const rounds = 1000
	start := time.Now()
	for range rounds {
		if err := c.Incr(ctx, "count").Err(); err != nil {
			return err
		}
	}
	each := time.Since(start) / rounds
	n, err := c.Get(ctx, "count").Int()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "count: %d, %v each\n", n, each.Round(100*time.Nanosecond))
	return nil
}
