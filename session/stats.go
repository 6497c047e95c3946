package session

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

// statistics completes what the core has counted.
func (c *core) statistics() Stats {
	s := c.stats
	s.BytesCopiedIn, s.BytesCopiedOut = c.arrived-s.BytesRDMAIn, c.stream.written-s.BytesRDMAOut
	s.MessagesReceived += c.received
	s.MessagesSent += c.sent
	for i := range c.recv {
		s.ReceiveRegion += len(c.recv[i].region.Bytes)
	}
	s.Threshold = c.threshold
	if c.regs != nil {
		r := c.regs.Stats()
		s.LiveRegistrations, s.CachedRegistrations = r.InUse, r.Cached
	}
	if c.out.active && c.out.read && c.out.handle != 0 {
		s.LiveRegistrations++
	}
	if c.in.busy && !c.in.read {
		s.LiveRegistrations++
	}
	return s
}
