package provider

// GUID identifies an optional extension. The values are those of WSD.
type GUID [16]byte

var (
	// GUIDRDMARead is WSAID_RDMAREAD {C0B422FA-F58C-11D1-AD6C-00C04FA34A2D}; the extension is an RDMAReader.
	GUIDRDMARead = GUID{0xC0, 0xB4, 0x22, 0xFA, 0xF5, 0x8C, 0x11, 0xD1, 0xAD, 0x6C, 0x00, 0xC0, 0x4F, 0xA3, 0x4A, 0x2D}

	// GUIDCacheCallback is WSAID_MEMORYREGISTRATIONCACHECALLBACK {E5DA4AF8-D824-48CD-A799-6337A98ED2AF};
	// the extension is a CacheInvalidator.
	GUIDCacheCallback = GUID{0xE5, 0xDA, 0x4A, 0xF8, 0xD8, 0x24, 0x48, 0xCD, 0xA7, 0x99, 0x63, 0x37, 0xA9, 0x8E, 0xD2, 0xAF}
)

// RDMAReader is the optional RDMA read (WSPRdmaRead).
type RDMAReader interface {
	// PostRead reads exposed memory of the peer into local memory. Errors as for Endpoint.PostWrite.
	PostRead(r RDMA) error
}

// CacheInvalidator is the optional WSPMemoryRegistrationCacheCallback, of providers that keep registrations
// of their own beyond Deregister.
type CacheInvalidator interface {
	// InvalidateCache drops every cached registration that overlaps b, which is about to be
	// changed, unmapped or released.
	InvalidateCache(b []byte)
}

// GUIDSpinner is {5F0C2B1E-7D43-4E6A-9A57-63B0F1C8D24E}, an identifier of our own; the extension is a Spinner.
var GUIDSpinner = GUID{0x5F, 0x0C, 0x2B, 0x1E, 0x7D, 0x43, 0x4E, 0x6A, 0x9A, 0x57, 0x63, 0xB0, 0xF1, 0xC8, 0xD2, 0x4E}

// Spinner is an optional extension of providers where looking again for a moment is cheaper than going to sleep and being
// woken.
type Spinner interface {
	// Spin is called by a waiter that has nothing to poll and is about to arm and sleep. It looks for completions
	// for a bounded time that the provider chooses by what has paid off, down to none at all, and reports whether
	// there are some. It takes none and changes no arming. It may be called from any goroutine, also after Close.
	Spin() (ready bool)
}

// GUIDSleeper is {9B1E6D40-2C5F-4A83-8E1D-47A0C6F25B9A}, an identifier of our own; the extension is a Sleeper.
var GUIDSleeper = GUID{0x9B, 0x1E, 0x6D, 0x40, 0x2C, 0x5F, 0x4A, 0x83, 0x8E, 0x1D, 0x47, 0xA0, 0xC6, 0xF2, 0x5B, 0x9A}

// Sleeper is an optional extension of providers that can wake a goroutine which sleeps in the provider by a shorter way
// than through the wake function. It is used so:
//
//	if s.Seat() {
//		ready := e.Arm(WakeAny)
//		s.Sleep(ready) // in place of waiting for the wake function
//	}
//
// All methods may be called from any goroutine, also after Close.
type Sleeper interface {
	// Seat takes the place of the one goroutine that may sleep in the provider, and reports whether it got it. A provider
	// has few places, and may keep them for endpoints that gain from one.
	Seat() bool

	// Sleep returns when an armed completion has arrived, for which the wake function need not be called then, after Interrupt,
	// when the endpoint is closed, or for no reason; at once if ready is true. It gives the seat back. The caller polls and
	// arms anew, as it would after a wake-up.
	Sleep(ready bool)

	// Interrupt makes the Sleep under way return, or the next one, if there is none. It does not block: the wake
	// function may call it.
	Interrupt()
}

// GUIDAppender is {3D7A51C4-90E2-4B0F-B6C8-1F52E7A90D63}, an identifier of our own; the extension is an Appender.
var GUIDAppender = GUID{0x3D, 0x7A, 0x51, 0xC4, 0x90, 0xE2, 0x4B, 0x0F, 0xB6, 0xC8, 0x1F, 0x52, 0xE7, 0xA9, 0x0D, 0x63}

// Appender is an optional extension of providers whose messages lie in the receiver's memory as soon as PostSend returns, so
// that they outlive their sender. A message that was sent with Send.Open, and that the peer has not taken yet, can
// still grow there.
type Appender interface {
	// Append adds p to the message that this endpoint has sent last, and reports whether it did. It does not where that
	// message was not sent with Send.Open, its receive has no room for p, the peer has taken it, the connection
	// has ended, or for reasons of the provider's own; then the message has not changed. The peer's completion has the
	// length of the whole message, which proves that every RDMA write posted before the Append is in place.
	// Nobody is woken, as the message itself has done that. p may be used again.
	//
	// An Append that comes while the peer takes the message may change bytes of the receive behind the message, a
	// little later, too. So the rest of a receive is of no use until the next message has been taken.
	Append(p []byte) bool

	// Unread says whether the application has yet to read bytes that this end has taken. Nobody asks while this process lives.
	// Should it end, the peer's OpDisconnect says StatusExitedUnread if unread was true last, or if a message sent
	// with Send.Open has not been taken; otherwise StatusExited. Who wants every end of the process to look like a reset says
	// true, too. After Close it does nothing.
	Unread(unread bool)
}
