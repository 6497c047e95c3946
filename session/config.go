package session

import (
	"time"

	"sansock/provider"
)

// Side is the part that an end takes in the negotiation.
type Side uint8

const (
	Dialer Side = iota
	Listener
)

// Config are the settings of a session. The zero Config is usable.
type Config struct {
	// Timeout bounds the negotiation. 0: DefaultTimeout.
	Timeout time.Duration

	// ReadBuffer is how many received bytes, beyond the posted receive buffers, are kept while nobody reads, so
	// that the peer's writes return. 0: DefaultReadBuffer.
	ReadBuffer int

	// Threshold is the size from which a write is sent by RDMA. 0: chosen by the provider's preference. Negative: never.
	Threshold int

	// CacheBytes bounds the memory of the application that stays registered locally, out of the peer's reach, between
	// transfers, where the provider wants memory to be registered. 0: DefaultCacheBytes. Negative: none.
	CacheBytes int

	// Provider is that of the endpoint. With it the peer can be handed over to another process, and the session waits for
	// that at an address of the provider's. nil: neither end can be handed over.
	Provider provider.Provider

	// ResumeTimeout is how long the connection waits for a peer that is handed over. 0: DefaultResumeTimeout.
	ResumeTimeout time.Duration
}

const (
	DefaultTimeout = 5 * time.Second

	DefaultResumeTimeout = 30 * time.Second

	DefaultReadBuffer = 4 << 20
	DefaultCacheBytes = 64 << 20

	cacheEntries = 64
)

// Stats counts what one end of a session has done. Byte counts are of the stream.
type Stats struct {
	BytesCopiedIn, BytesCopiedOut uint64 // in messages
	BytesRDMAIn, BytesRDMAOut     uint64 // by RDMA, without a copy
	MessagesReceived              uint64
	MessagesSent                  uint64
	ReadTransfers                 uint64 // RDMA reads made by this side
	WriteTransfers                uint64 // targets that RDMA writes filled, at either side
	Registrations                 uint64 // uses of registered memory for large writes, cached or new
	UrgentReceived, UrgentSent    uint64 // urgent messages
	GrowFailures                  uint64 // the provider had no memory for a larger receive region
	Fallbacks                     Fallbacks

	ReceiveRegion       int // bytes of receive buffers posted now
	LiveRegistrations   int // of the application's memory, in use by large writes now
	CachedRegistrations int // kept for the next time; the peer cannot reach them
	Threshold           int // size from which a write goes by RDMA; 0: none does
}

// Fallbacks counts large writes that went in messages after all, by cause.
type Fallbacks struct {
	SendRegistration    uint64 // the writer could not register its memory
	ReceiveRegistration uint64 // the reader could not register its memory
	Buffer              uint64 // NewBuffer found no registered memory
}
