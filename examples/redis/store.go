package main

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/tidwall/redcon"
)

// store is the little of Redis that the example needs.
type store struct {
	mu     sync.Mutex
	values map[string]string
	pubsub redcon.PubSub
}

func newStore() *store { return &store{values: make(map[string]string)} }

// serve serves until the listener is closed, and leaves connections alone.
func (s *store) serve(l net.Listener) error {
	err := redcon.Serve(l, s.command, func(redcon.Conn) bool { return true }, nil)
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (s *store) command(c redcon.Conn, cmd redcon.Command) {
	var args []string
	for _, a := range cmd.Args[1:] {
		args = append(args, string(a))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch name := strings.ToLower(string(cmd.Args[0])); {
	case name == "ping":
		c.WriteString("PONG")
	case name == "set" && len(args) == 2:
		s.values[args[0]] = args[1]
		c.WriteString("OK")
	case name == "get" && len(args) == 1:
		if v, ok := s.values[args[0]]; ok {
			c.WriteBulkString(v)
		} else {
			c.WriteNull()
		}
	case name == "incr" && len(args) == 1:
		n, err := strconv.Atoi("0" + s.values[args[0]])
		if err != nil {
			c.WriteError("ERR value is not an integer or out of range")
			return
		}
		s.values[args[0]] = strconv.Itoa(n + 1)
		c.WriteInt(n + 1)
	case name == "publish" && len(args) == 2:
		c.WriteInt(s.pubsub.Publish(args[0], args[1]))
	case name == "subscribe" && len(args) > 0:
		for _, channel := range args {
			s.pubsub.Subscribe(c, channel)
		}
	case name == "quit":
		c.WriteString("OK")
		c.Close()
	default:
		c.WriteError("ERR unknown command '" + name + "'")
	}
}
