package sanswitch

import (
	"context"
	"errors"
	"io/fs"
	"syscall"

	"sansock/provider"
	"sansock/session"
)

// Reason is why a connection took its path. The list is closed: every connection has one of these.
type Reason uint8

const (
	// ReasonNone: nothing is known.
	ReasonNone Reason = iota

	// ReasonSAN: the SAN works, the connection is over it.
	ReasonSAN

	// ReasonNetwork: the network is not TCP, and is left to net.
	ReasonNetwork

	// ReasonDisabled: the switch has no providers, or is closed.
	ReasonDisabled

	// ReasonControl: a Control function has set what the SAN does not have, see Dial, or does not
	// want the address. Route.Err says what.
	ReasonControl

	// ReasonLocalAddr: the local address asked for is not one of the provider's, or is taken on its SAN.
	ReasonLocalAddr

	// ReasonNoProvider: no provider reaches, or serves, the address.
	ReasonNoProvider

	// ReasonProviderFailed: the provider failed in a way that has no reason of its own.
	ReasonProviderFailed

	// ReasonUnsupported: the provider does not offer what was needed.
	ReasonUnsupported

	// ReasonMemory: memory that the device can reach, registrations or queue entries have run out.
	ReasonMemory

	// ReasonLink: the link or the device failed.
	ReasonLink

	// ReasonNoListener: nothing listens there on the SAN.
	ReasonNoListener

	// ReasonRefused: the peer refused the connection on the SAN. Only where the name dialed has further addresses
	// does Dial go on over TCP then.
	ReasonRefused

	// ReasonUnreachable: the SAN has no way to the host. Dial goes on as after ReasonRefused.
	ReasonUnreachable

	// ReasonDisconnected: the peer went away before there was a session.
	ReasonDisconnected

	// ReasonTimeout: the SAN gave no answer in time.
	ReasonTimeout

	// ReasonCanceled: the attempt on the SAN was called off.
	ReasonCanceled

	// ReasonRaceLost: TCP was connected before the SAN was.
	ReasonRaceLost

	// ReasonCached: an attempt on the SAN failed a short while ago, so none was made. Route.Err is that failure.
	ReasonCached

	// ReasonNegotiation: the peer did not keep to the session protocol.
	ReasonNegotiation

	// ReasonVersion: the two sides share no version of the session protocol.
	ReasonVersion

	// ReasonPeerDeclined: the peer was reached over the SAN and wants TCP instead. Route.Peer is its reason.
	ReasonPeerDeclined

	// ReasonBusy: more connections are being set up than a listener allows at a time.
	ReasonBusy

	// ReasonPlainClient: the connection was accepted over TCP, as its client chose TCP.
	ReasonPlainClient

	// ReasonOtherUser: what listens there on the SAN belongs to another user, whose programs this SAN does not connect
	// with ours.
	ReasonOtherUser

	// ReasonPorts: no port is free on the SAN to dial from: there are as many connections between
	// the two addresses as it has ports.
	ReasonPorts

	// ReasonSystem: the system does not let this process do what the SAN needs: a sandbox refuses
	// system calls, or a limit is too low. Route.Err says which.
	ReasonSystem

	reasons
)

var reasonText = [reasons]string{
	ReasonNone:           "unknown",
	ReasonSAN:            "SAN works",
	ReasonNetwork:        "not a TCP network",
	ReasonDisabled:       "no SAN in use",
	ReasonControl:        "Control function set",
	ReasonLocalAddr:      "local address not available on the SAN",
	ReasonNoProvider:     "no SAN provider for the address",
	ReasonProviderFailed: "SAN provider failed",
	ReasonUnsupported:    "not supported by the SAN provider",
	ReasonMemory:         "no memory for the SAN",
	ReasonLink:           "SAN link failed",
	ReasonNoListener:     "no listener on the SAN",
	ReasonRefused:        "refused on the SAN",
	ReasonUnreachable:    "unreachable over the SAN",
	ReasonDisconnected:   "peer disconnected on the SAN",
	ReasonTimeout:        "SAN timed out",
	ReasonCanceled:       "SAN attempt canceled",
	ReasonRaceLost:       "TCP was faster than the SAN",
	ReasonCached:         "SAN failed recently",
	ReasonNegotiation:    "peer does not speak the session protocol",
	ReasonVersion:        "no common protocol version",
	ReasonPeerDeclined:   "peer declined the SAN",
	ReasonBusy:           "too many connections being set up",
	ReasonPlainClient:    "client chose TCP",
	ReasonOtherUser:      "listener on the SAN belongs to another user",
	ReasonPorts:          "no free port on the SAN",
	ReasonSystem:         "the system does not allow what the SAN needs",
}

// String returns the reason in a few words.
func (r Reason) String() string {
	if r < reasons {
		return reasonText[r]
	}
	return "unknown"
}

// reasonOf returns the reason that err, the error of a provider or of a session's negotiation, gives for not using
// the SAN.
func reasonOf(err error) Reason {
	var declined *session.RefusedError
	var control *controlError
	var status provider.Status
	switch {
	case err == nil:
		return ReasonSAN
	case errors.As(err, &control):
		return ReasonControl
	case errors.As(err, &declined), rejectionOf(err) != rejectFinal:
		return ReasonPeerDeclined
	case errors.Is(err, session.ErrTimeout):
		return ReasonTimeout
	case errors.Is(err, session.ErrVersion):
		return ReasonVersion
	case errors.Is(err, session.ErrProtocol):
		return ReasonNegotiation
	case errors.Is(err, session.ErrMemory):
		return ReasonMemory
	case errors.Is(err, session.ErrProvider):
		return ReasonUnsupported
	case errors.Is(err, context.DeadlineExceeded):
		return ReasonTimeout
	case errors.Is(err, context.Canceled):
		return ReasonCanceled
	case errors.Is(err, provider.StatusNoListener) && errors.Is(err, fs.ErrPermission):
		return ReasonOtherUser
	case errors.Is(err, errPorts):
		return ReasonPorts
	case isOfSystem(err):
		return ReasonSystem
	case errors.As(err, &status):
		return reasonOfStatus(status)
	}
	return ReasonProviderFailed
}

// systemErrnos are how a sandbox, or a limit, refuses.
var systemErrnos = []syscall.Errno{
	syscall.EPERM, syscall.EACCES, syscall.ENOSYS, syscall.EAFNOSUPPORT, syscall.EFBIG,
}

// isOfSystem reports whether a provider has failed because the system refuses it something for
// good.
func isOfSystem(err error) bool {
	if s := provider.StatusOf(err); s != provider.StatusLink && s != provider.StatusNoMemory {
		return false
	}
	for _, errno := range systemErrnos {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

func reasonOfStatus(s provider.Status) Reason {
	switch s {
	case provider.StatusRefused:
		return ReasonRefused
	case provider.StatusUnreachable:
		return ReasonUnreachable
	case provider.StatusNoListener:
		return ReasonNoListener
	case provider.StatusAborted, provider.StatusDisconnected,
		provider.StatusExited, provider.StatusExitedUnread:
		return ReasonDisconnected
	case provider.StatusTimeout:
		return ReasonTimeout
	case provider.StatusLink:
		return ReasonLink
	case provider.StatusNoMemory, provider.StatusLimit, provider.StatusQueueFull:
		return ReasonMemory
	case provider.StatusAddrInUse, provider.StatusAddrNotAvail:
		return ReasonLocalAddr
	case provider.StatusUnsupported:
		return ReasonUnsupported
	}
	// What is left is the fault of a provider, or of the session above it: operations on memory in use, with memory
	// that is not registered, too long, or on something that is closed.
	return ReasonProviderFailed
}

// peerReasonOf returns the reason that the peer gave in err, ReasonNone if it gave none.
func peerReasonOf(err error) Reason {
	var declined *session.RefusedError
	if errors.As(err, &declined) {
		switch declined.Code {
		case session.RefusedMemory:
			return ReasonMemory
		case session.RefusedVersion:
			return ReasonVersion
		case session.RefusedBusy:
			return ReasonBusy
		}
		return ReasonNone
	}
	return rejectionOf(err).reason()
}
