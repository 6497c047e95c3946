package sannet

import (
	"sansock/session"
	sanswitch "sansock/switch"
)

// Path is how a connection travels.
type Path = sanswitch.Path

// The paths.
const (
	PathTCP   = sanswitch.PathTCP   // over TCP
	PathSAN   = sanswitch.PathSAN   // over a SAN
	PathOther = sanswitch.PathOther // over another network, which was left to net
)

// Reason is why a connection took its path. The list is closed: every connection has one of these. String
// says it in a few words.
type Reason = sanswitch.Reason

// Stats counts what one end of a connection over the SAN has done.
type Stats = session.Stats

// The reasons. Their comments are those of package sanswitch.
const (
	ReasonNone           = sanswitch.ReasonNone
	ReasonSAN            = sanswitch.ReasonSAN
	ReasonNetwork        = sanswitch.ReasonNetwork
	ReasonDisabled       = sanswitch.ReasonDisabled
	ReasonControl        = sanswitch.ReasonControl
	ReasonLocalAddr      = sanswitch.ReasonLocalAddr
	ReasonNoProvider     = sanswitch.ReasonNoProvider
	ReasonProviderFailed = sanswitch.ReasonProviderFailed
	ReasonUnsupported    = sanswitch.ReasonUnsupported
	ReasonMemory         = sanswitch.ReasonMemory
	ReasonLink           = sanswitch.ReasonLink
	ReasonNoListener     = sanswitch.ReasonNoListener
	ReasonRefused        = sanswitch.ReasonRefused
	ReasonUnreachable    = sanswitch.ReasonUnreachable
	ReasonDisconnected   = sanswitch.ReasonDisconnected
	ReasonTimeout        = sanswitch.ReasonTimeout
	ReasonCanceled       = sanswitch.ReasonCanceled
	ReasonRaceLost       = sanswitch.ReasonRaceLost
	ReasonCached         = sanswitch.ReasonCached
	ReasonNegotiation    = sanswitch.ReasonNegotiation
	ReasonVersion        = sanswitch.ReasonVersion
	ReasonPeerDeclined   = sanswitch.ReasonPeerDeclined
	ReasonBusy           = sanswitch.ReasonBusy
	ReasonPlainClient    = sanswitch.ReasonPlainClient
	ReasonOtherUser      = sanswitch.ReasonOtherUser
	ReasonPorts          = sanswitch.ReasonPorts
	ReasonSystem         = sanswitch.ReasonSystem
)
