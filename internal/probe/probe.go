// Package probe finds out what a Control function of a net.Dialer or net.ListenConfig does to a
// socket, which decides whether a connection may do without one.
//
// Not seen are options that the kernel does not show: TCP_MD5SIG, and programs attached with
// SO_ATTACH_BPF. Nor is what a function does with the descriptor later, if it keeps it.
package probe

import (
	"syscall"
	"time"
)

// KeepAlive has the keep-alive options of a socket.
type KeepAlive struct {
	Enable         bool
	Idle, Interval time.Duration
	Count          int

	// UserTimeout is TCP_USER_TIMEOUT, 0: none.
	UserTimeout time.Duration
}

// Changes is what a Control function did.
type Changes struct {
	// Option is the first option that needs a socket, such as "SO_MARK", or "bind"; empty if there
	// is none.
	Option string

	// KeepAlive is what keep-alive is now; nil if it is as it was.
	KeepAlive *KeepAlive
}

// Control is a Control function that knows network and address.
type Control func(c syscall.RawConn) error
