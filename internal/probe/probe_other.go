//go:build !linux

package probe

import (
	"errors"
	"syscall"
)

// Socket is a socket that a Control function has seen.
type Socket struct{}

// Supported tells that Dial works here.
const Supported = false

// Dial is for Linux alone.
func Dial(six bool, control Control) (*Socket, Changes, error) {
	return nil, Changes{}, errors.ErrUnsupported
}

// Adopt is for Linux alone.
func (s *Socket) Adopt(c syscall.RawConn) (bool, error) { return false, nil }

// Close does nothing.
func (s *Socket) Close() {}

// Listener is for Linux alone.
func Listener(c syscall.RawConn, six bool) (Changes, error) { return Changes{}, errors.ErrUnsupported }
