package provider

import (
	"errors"
	"net"
	"os"
	"syscall"
)

// Status says how an operation ended. A Status other than StatusOK is an error that can be compared,
// and that errors.Is also finds equal to the standard error of the same meaning, named below.
type Status uint8

const (
	StatusOK           Status = iota
	StatusAborted             // cut short by the end of the connection
	StatusDisconnected        // the peer is gone; syscall.ECONNRESET
	StatusAccess              // the owner of the memory refused: key, bounds, rights, or no longer registered; syscall.EACCES
	StatusLocal               // a local segment is not registered with this endpoint, or out of bounds; syscall.EFAULT
	StatusTooLong             // longer than the limit or the posted receive; syscall.EMSGSIZE
	StatusNotReady            // the peer had posted no receive
	StatusQueueFull           // as many operations are posted as the attributes allow; syscall.ENOBUFS
	StatusNoMemory            // no memory that the device can reach; syscall.ENOMEM
	StatusLimit               // a limit on registrations is reached; syscall.ENOMEM
	StatusBusy                // posted operations still use it; syscall.EBUSY
	StatusRefused             // the peer, reached, refused the connection; syscall.ECONNREFUSED
	StatusUnreachable         // there is no way to the host; syscall.EHOSTUNREACH
	StatusNoListener          // nothing of this SAN listens there; TCP may
	StatusAddrInUse           // the address is taken; syscall.EADDRINUSE
	StatusAddrNotAvail        // the address is not one of this provider's; syscall.EADDRNOTAVAIL
	StatusTimeout             // no answer in time; syscall.ETIMEDOUT and os.ErrDeadlineExceeded
	StatusLink                // the link or the device failed; syscall.ENETDOWN
	StatusUnsupported         // not offered by this provider; errors.ErrUnsupported
	StatusClosed              // closed on this side; net.ErrClosed
	StatusExited              // the peer's process has ended; all that it sent is here, and its application had read everything
	StatusExitedUnread        // likewise, but it had not; syscall.ECONNRESET
	statuses
)

var statusText = [statuses]string{
	StatusOK:           "ok",
	StatusAborted:      "operation aborted",
	StatusDisconnected: "peer disconnected",
	StatusAccess:       "access to remote memory refused",
	StatusLocal:        "local memory not registered",
	StatusTooLong:      "message or transfer too long",
	StatusNotReady:     "peer has no receive posted",
	StatusQueueFull:    "too many operations posted",
	StatusNoMemory:     "no memory that the device can reach",
	StatusLimit:        "registration limit reached",
	StatusBusy:         "memory in use",
	StatusRefused:      "connection refused",
	StatusUnreachable:  "no route to host",
	StatusNoListener:   "no listener on the SAN",
	StatusAddrInUse:    "address already in use",
	StatusAddrNotAvail: "address not served by the provider",
	StatusTimeout:      "timed out",
	StatusLink:         "link failed",
	StatusUnsupported:  "unsupported",
	StatusClosed:       "closed",
	StatusExited:       "the peer's process has ended",
	StatusExitedUnread: "the peer's process has ended with unread data",
}

// Error returns the meaning in words.
func (s Status) Error() string {
	if s < statuses {
		return statusText[s]
	}
	return "unknown status"
}

// Is makes errors.Is find the standard error of the same meaning.
func (s Status) Is(target error) bool {
	switch s {
	case StatusDisconnected, StatusExitedUnread:
		return target == syscall.ECONNRESET
	case StatusAccess:
		return target == syscall.EACCES
	case StatusLocal:
		return target == syscall.EFAULT
	case StatusTooLong:
		return target == syscall.EMSGSIZE
	case StatusQueueFull:
		return target == syscall.ENOBUFS
	case StatusNoMemory, StatusLimit:
		return target == syscall.ENOMEM
	case StatusBusy:
		return target == syscall.EBUSY
	case StatusRefused:
		return target == syscall.ECONNREFUSED
	case StatusUnreachable:
		return target == syscall.EHOSTUNREACH
	case StatusAddrInUse:
		return target == syscall.EADDRINUSE
	case StatusAddrNotAvail:
		return target == syscall.EADDRNOTAVAIL
	case StatusTimeout:
		return target == syscall.ETIMEDOUT || target == os.ErrDeadlineExceeded
	case StatusLink:
		return target == syscall.ENETDOWN
	case StatusUnsupported:
		return target == errors.ErrUnsupported
	case StatusClosed:
		return target == net.ErrClosed
	}
	return false
}

// Err returns s as an error, nil for StatusOK.
func (s Status) Err() error {
	if s == StatusOK {
		return nil
	}
	return s
}

// Error is an error of a provider, with what it was doing.
type Error struct {
	Provider string // the provider's name
	Op       string // "dial", "listen", "accept", "register", ...
	Status   Status
	Reason   []byte // what the peer's Reject carried
	Err      error  // the cause below, if any
}

func (e *Error) Error() string {
	s := e.Provider + ": " + e.Op + ": " + e.Status.Error()
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the status and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Status}
	}
	return []error{e.Status, e.Err}
}

// StatusOf returns the Status in err's tree: StatusOK for nil, and StatusLink, the least specific failure, where
// there is none.
func StatusOf(err error) Status {
	if err == nil {
		return StatusOK
	}
	var s Status
	if errors.As(err, &s) {
		return s
	}
	return StatusLink
}
