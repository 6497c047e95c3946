package shm

import "sansock/provider"

// Config says what a process offers to others. Its zero value is a good default.
type Config struct {
	// Name is the provider's name in errors; by default "emu".
	Name string

	// Space keeps rendezvous apart: only nodes of the same name space find each other.
	Space string

	// Dir, if it is not empty, is a directory in which processes meet that do not share a network namespace. Who may enter
	// it may try. It adds to the abstract names of the network namespace.
	Dir string

	// Accept reports whether a process may connect to this one, Reach whether this one may connect to it. nil: if it is of
	// the same user. A user that the user namespace does not have is never asked for, and never trusted.
	Accept, Reach func(Peer) bool

	// Memory bounds, in bytes, the shared memory of this process, ConnMemory that of one connection. One peer may have
	// half of it.
	Memory     int64 // 0: 1 GiB, or a quarter of what the control group may have, if that is less
	ConnMemory int   // 0: 64 MiB
}

// Peer is another process, as the kernel names it to this one.
type Peer struct {
	PID      int // 0: in a process-id namespace that this process does not see
	UID, GID uint32
}

// Acceptor takes connection requests, for Bind. Its methods must not wait, and must not call the node, nor, but for Requested,
// a request.
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
		c.Memory = min(1<<30, groupMemory()/4)
	}
	if c.ConnMemory <= 0 {
		c.ConnMemory = 64 << 20
	}
}

func (c *Config) failure(op string, s provider.Status, cause error) error {
	return &provider.Error{Provider: c.Name, Op: op, Status: s, Err: cause}
}
