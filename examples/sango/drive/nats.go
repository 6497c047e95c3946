package main

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

func natsClient(addr string) error {
	server, err := nats.Connect("nats://" + addr)
	if err != nil {
		return err
	}
	defer server.Close()
	if _, err := server.Subscribe("ask", func(m *nats.Msg) { m.Respond(m.Data) }); err != nil {
		return err
	}
	if err := server.Flush(); err != nil {
		return err
	}
	client, err := nats.Connect("nats://" + addr)
	if err != nil {
		return err
	}
	defer client.Close()
	text := make([]byte, 128)
	if err := latency("request", func() error {
		_, err := client.Request("ask", text, 5*time.Second)
		return err
	}); err != nil {
		return err
	}
	return natsStream(server, client)
}

// natsStream sends messages from one client to the other, and makes sure that none is lost.
func natsStream(server, client *nats.Conn) error {
	const n = 100_000
	done := make(chan struct{})
	got := 0
	sub, err := server.Subscribe("data", func(*nats.Msg) {
		if got++; got == n {
			close(done)
		}
	})
	if err != nil {
		return err
	}
	sub.SetPendingLimits(-1, -1)
	if err := server.Flush(); err != nil {
		return err
	}
	text := make([]byte, 128)
	start := time.Now()
	for range n {
		if err := client.Publish("data", text); err != nil {
			return err
		}
	}
	select {
	case <-done:
		figure("messages of 128 bytes", n/time.Since(start).Seconds(), "/s", "higher")
		return nil
	case <-time.After(20 * time.Second):
		return fmt.Errorf("messages were lost")
	}
}
