// Package provider is the service-provider interface (SPI): what a system-area network must offer so that
// sansock can run sessions over it. It gives the extension functions of Microsoft's Windows Sockets Direct
// (WSD) Go shapes; docs/spi.md maps every WSD name to ours.
//
// A Provider makes connections, an Endpoint moves messages and memory over one of them. Package providertest
// proves that an implementation keeps the promises written here.
package provider

import (
	"context"
	"net/netip"
)

// Provider is one SAN that this host can use, opened and ready (WSPStartupEx).
// Its methods may be called from any goroutine.
type Provider interface {
	// Name is short and lower-case, as written in SANNET_PROVIDERS.
	Name() string

	// Attributes returns what the provider's endpoints offer at most. An endpoint's own Attributes are the
	// ones that bind, as two connections of a provider may run over different hardware.
	Attributes() Attributes

	// Prefixes returns the local addresses that the provider serves now, each with the length of the network
	// it reaches from there (SIO_ADDRESS_LIST_QUERY): Prefix.Addr is an address that Listen takes,
	// Prefix.Masked the destinations that Dial reaches. Callers ask again when addresses may have changed.
	Prefixes() ([]netip.Prefix, error)

	// Dial connects to remote (WSPSocket, WSPBind, WSPConnect). A zero local leaves the choice of the local
	// address, or a zero port that of the port, to the provider. It returns once the peer has accepted.
	//
	// The error is a *Error. It is StatusRefused only where TCP would be refused too, that is when the peer
	// rejected the request or its backlog was full, and StatusUnreachable only where TCP could not reach
	// the host either: for these the switch does not fall back (WSD's rule). A remote where nothing of
	// this SAN listens is StatusNoListener. When ctx ends, the *Error wraps ctx's error, and nothing is left behind.
	Dial(ctx context.Context, local, remote netip.AddrPort) (Endpoint, error)

	// Listen starts to take connection requests for local (WSPListen). The address may be unspecified, which
	// serves every address of its family, and for :: of both families where the provider has both. Port 0
	// lets the provider choose. At most backlog requests wait for Accept; further ones are refused.
	// A port that is taken on this SAN is an error that is syscall.EADDRINUSE.
	Listen(local netip.AddrPort, backlog int) (Listener, error)

	// Close closes the provider and its listeners. Endpoints live on until they are closed themselves.
	Close() error
}

// Listener takes connection requests for one address. Its methods may be called from any goroutine.
type Listener interface {
	// Accept waits for a connection request. After Close it returns an error that is net.ErrClosed.
	Accept() (Request, error)

	// Addr is the address listened on, with the port that was chosen.
	Addr() netip.AddrPort

	// Close stops listening, wakes Accept and rejects the requests that wait. Closing again does nothing.
	Close() error
}

// Request is a connection request which the peer's Dial waits for (the WSPAccept condition function).
// Exactly one of Accept and Reject is called, by one goroutine. A request dropped without either
// leaves the peer to its own timeout.
type Request interface {
	LocalAddr() netip.AddrPort  // the address that the peer dialed
	RemoteAddr() netip.AddrPort // the peer's own

	// Accept makes the connection. The peer's Dial succeeds no sooner than this is called. It fails
	// when the peer has gone in the meantime, or ctx ends: then the error, a *Error, wraps ctx's.
	Accept(ctx context.Context) (Endpoint, error)

	// Reject makes the peer's Dial fail with StatusRefused and the reason, of which the first
	// MaxReject bytes reach it. The provider keeps a copy.
	Reject(reason []byte) error
}

// MaxReject is the number of bytes a rejection may carry on every fabric.
const MaxReject = 48

// MaxFirstMessage is the largest first message, in bytes, that a provider holds for a
// peer which has not posted a receive yet.
const MaxFirstMessage = 256
