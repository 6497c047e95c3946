package session

import (
	"errors"
	"fmt"
	"os"
)

// Errors of Negotiate and, for ErrProtocol, of a connection whose peer broke the protocol.
var (
	// ErrVersion: the two sides share no version of the protocol.
	ErrVersion = errors.New("session: no common protocol version")

	// ErrProtocol: the peer's bytes are not this protocol.
	ErrProtocol = errors.New("session: protocol error")

	// ErrMemory: the provider gave no memory for the message regions.
	ErrMemory = errors.New("session: no memory for message regions")

	// ErrProvider: the provider's limits are too tight for a session. See provider.Attributes.
	ErrProvider = errors.New("session: the provider takes too few operations at a time")

	// ErrTimeout: the peer did not answer within Config.Timeout. It is os.ErrDeadlineExceeded too.
	ErrTimeout error = timeoutError{}
)

type timeoutError struct{}

func (timeoutError) Error() string        { return "session: negotiation timed out" }
func (timeoutError) Timeout() bool        { return true }
func (timeoutError) Temporary() bool      { return true }
func (timeoutError) Is(target error) bool { return target == os.ErrDeadlineExceeded }

// Refusal codes: why a listening side declined a session after the connection was made.
const (
	RefusedMemory  = 1 // it has no memory for another session
	RefusedVersion = 2 // it does not speak the versions offered
	RefusedBusy    = 3 // it takes no more sessions now
	RefusedToken   = 4 // what waits there is not the session asked for
)

// RefusedError is Negotiate's error where the peer's session layer declined. TCP may still serve the peer.
type RefusedError struct{ Code uint8 }

func (e *RefusedError) Error() string {
	why := [...]string{RefusedMemory: "no memory", RefusedVersion: "version", RefusedBusy: "busy", RefusedToken: "no such session"}
	if e.Code == 0 || int(e.Code) >= len(why) {
		return fmt.Sprintf("session: peer declined: code %d", e.Code)
	}
	return "session: peer declined: " + why[e.Code]
}

func protocolError(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrProtocol}, args...)...)
}

// unsupported is an error that is errors.ErrUnsupported.
type unsupported string

func (e unsupported) Error() string        { return string(e) }
func (e unsupported) Is(target error) bool { return target == errors.ErrUnsupported }
