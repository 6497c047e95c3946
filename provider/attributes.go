package provider

// Attributes are the limits and preferences of a provider or of one endpoint. They never change.
// Sizes are in bytes and, unless said otherwise, at least 1.
type Attributes struct {
	// MaxMessage is the longest message (SO_MAX_MSG_SIZE), at least MaxFirstMessage.
	MaxMessage int

	// MaxRDMA is the longest RDMA write or read (SO_MAX_RDMA_SIZE).
	MaxRDMA int

	// RDMAThreshold is the write size from which RDMA pays off on this SAN (SO_RDMA_THRESHOLD_SIZE).
	// It is a preference, which a session may override.
	RDMAThreshold int

	// MaxInline is the longest message that PostSend takes from unregistered memory. 0: none.
	MaxInline int

	// MaxRecvs, MaxSends and MaxRDMAs are how many operations of each kind may be posted at a time;
	// inline sends do not count. MaxRDMAs is for writes and reads together. A session takes 6 receives, and 2 sends
	// unless MaxInline is MaxFirstMessage at least: a provider that offers less is valid, but not used.
	MaxRecvs, MaxSends, MaxRDMAs int

	// RDMARead tells that the extension RDMARead exists. A peer can read our exposed memory if its
	// own endpoint has the extension and this one is RDMAReadable.
	RDMARead bool

	// RDMAReadable tells that memory exposed with RightRead can be read by the peer.
	RDMAReadable bool

	// LocalRegistration tells that the local memory of RDMA operations must be registered with the
	// endpoint. Otherwise their Segment may name unregistered memory.
	LocalRegistration bool

	// Buffered is the message memory, in bytes each way, that keeps this SAN busy: what a
	// session should grow to for a sustained flow. 0: no preference.
	Buffered int
}
