package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/tidwall/redcon"
)

// serveRedis is a Redis server that knows GET, SET and PING.
func serveRedis(addr string) error {
	var values sync.Map
	return redcon.ListenAndServe(addr, func(c redcon.Conn, cmd redcon.Command) {
		switch name := string(cmd.Args[0]); {
		case (name == "set" || name == "SET") && len(cmd.Args) > 2:
			values.Store(string(cmd.Args[1]), string(cmd.Args[2]))
			c.WriteString("OK")
		case (name == "get" || name == "GET") && len(cmd.Args) == 2:
			if v, ok := values.Load(string(cmd.Args[1])); ok {
				c.WriteBulkString(v.(string))
			} else {
				c.WriteNull()
			}
		case name == "ping" || name == "PING":
			c.WriteString("PONG")
		default:
			c.WriteError("ERR unknown command")
		}
	}, func(redcon.Conn) bool { return true }, func(redcon.Conn, error) {})
}

func redisClient(addr string) error {
	ctx := context.Background()
	c := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2})
	defer c.Close()
	if err := c.Set(ctx, "k", "value", 0).Err(); err != nil {
		return err
	}
	get := func() error {
		v, err := c.Get(ctx, "k").Result()
		if err == nil && v != "value" {
			err = fmt.Errorf("got %q", v)
		}
		return err
	}
	if err := latency("GET", get); err != nil {
		return err
	}
	return rate("GET, 8 clients", 8, get)
}
