package shm

import "sansock/provider"

// Config says what a process offers to others. Its zero value is a good default.
type Config struct {
	// Name is the provider's name in errors; by default "emu".
	Name string

	// Space keeps rendezvous apart: only nodes of the same name space find each other.
	Space string

	// Trust reports whether processes of a user may connect, and be connected to. nil: only those
	// of our own.
	Trust func(uid uint32) bool

	// Memory bounds, in bytes, the shared memory of this process, ConnMemory that of one
	// connection.
	Memory     int64 // 0: 1 GiB
	ConnMemory int   // 0: 64 MiB
}

// Acceptor takes connection requests, for Bind. Its methods must not wait, and must not call the
// node, nor, but for Requested, a request.
type Acceptor interface {
	// Requested takes r, which it may accept or reject, or fails with the provider.Status that the
	// dialer is to see.
	Requested(r *Request) error

	// Withdrawn says that the dialer of a request, which was neither accepted nor rejected, has
	// gone.
	Withdrawn(r *Request)
}

func (c *Config) defaults() {
	if c.Name == "" {
		c.Name = "emu"
	}
	if c.Memory <= 0 {
		c.Memory = 1 << 30
	}
	if c.ConnMemory <= 0 {
		c.ConnMemory = 64 << 20
	}
}

func (c *Config) failure(op string, s provider.Status, cause error) error {
	return &provider.Error{Provider: c.Name, Op: op, Status: s, Err: cause}
}
