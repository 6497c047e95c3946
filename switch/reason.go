package sanswitch

import (
	"context"
	"errors"

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

	// ReasonControl: a Control function wants to see the socket, and the SAN has none.
	ReasonControl

	// ReasonLocalAddr: the local address asked for is not one of the provider's, or is taken on its SAN.
	ReasonLocalAddr

	// ReasonNoProvider: no provider reaches, or serves, the address.
	ReasonNoProvider

	// ReasonProviderFailed: the provider failed in a way that has no reason of its own.
	ReasonProviderFailed

	// ReasonUnsupported: the provider does not offer what was needed.
	ReasonUnsupported

	// ReasonMemory: no memory that the device can reach, or no registrations, are left for another connection.
	ReasonMemory

	// ReasonLink: the link or the device failed.
	ReasonLink

	// ReasonNoListener: nothing listens there on the SAN.
	ReasonNoListener

	// ReasonRefused: the peer refused the connection on the SAN. Dial falls back to TCP after it only
	// where the name dialed has further addresses.
	ReasonRefused

	// ReasonUnreachable: the SAN has no way to the host. Dial falls back after it as after ReasonRefused.
	ReasonUnreachable

	// ReasonDisconnected: the peer went away before the session was negotiated.
	ReasonDisconnected

	// ReasonTimeout: the SAN gave no answer in time.
	ReasonTimeout

	// ReasonCanceled: the attempt was called off.
	ReasonCanceled

	// ReasonRaceLost: TCP was connected before the SAN was.
	ReasonRaceLost

	// ReasonCached: an attempt on the SAN failed a short while ago, so none was made. Route.Err has that failure.
	ReasonCached

	// ReasonNegotiation: the peer did not keep to the session protocol.
	ReasonNegotiation

	// ReasonVersion: the two sides share no version of the session protocol.
	ReasonVersion

	// ReasonPeerDeclined: the peer can use the SAN, but did not want to. Route.Peer has its reason.
	ReasonPeerDeclined

	// ReasonBusy: more connections are being set up than this side allows at a time.
	ReasonBusy

	// ReasonPlainClient: the connection was accepted over TCP, as its client chose TCP.
	ReasonPlainClient

	reasons
)

var reasonText = [reasons]string{
	ReasonNone:           "unknown",
	ReasonSAN:            "SAN",
	ReasonNetwork:        "not a TCP network",
	ReasonDisabled:       "no SAN providers",
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
	ReasonDisconnected:   "disconnected during negotiation",
	ReasonTimeout:        "SAN timed out",
	ReasonCanceled:       "canceled",
	ReasonRaceLost:       "TCP was faster",
	ReasonCached:         "SAN failed recently",
	ReasonNegotiation:    "negotiation failed",
	ReasonVersion:        "no common protocol version",
	ReasonPeerDeclined:   "peer declined",
	ReasonBusy:           "too many connections being set up",
	ReasonPlainClient:    "client chose TCP",
}

// String returns the reason in a few words.
func (r Reason) String() string {
	if r < reasons {
		return reasonText[r]
	}
	return "invalid reason"
}

// reasonOf returns the reason that a failed attempt on the SAN gives to use TCP. It is the only place that
// maps errors of providers and sessions to reasons.
func reasonOf(err error) Reason {
	var declined *session.RefusedError
	var late *failure
	switch {
	case err == nil:
		return ReasonSAN
	case errors.As(err, &late):
		return late.reason
	case errors.As(err, &declined):
		return ReasonPeerDeclined
	case errors.Is(err, session.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		return ReasonTimeout
	case errors.Is(err, session.ErrVersion):
		return ReasonVersion
	case errors.Is(err, session.ErrProtocol):
		return ReasonNegotiation
	case errors.Is(err, session.ErrMemory):
		return ReasonMemory
	case errors.Is(err, context.Canceled):
		return ReasonCanceled
	}
	var s provider.Status
	if !errors.As(err, &s) {
		return ReasonProviderFailed
	}
	return reasonOfStatus(s)
}

func reasonOfStatus(s provider.Status) Reason {
	return ReasonProviderFailed
}

type failure struct{ reason Reason }

func (*failure) Error() string { return "" }
