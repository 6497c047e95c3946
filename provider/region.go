package provider

// Region is memory registered with one endpoint. It is a value: copies are the same registration,
// and a registration is gone, for every copy, once it is deregistered.
type Region struct {
	// Bytes is the whole registered memory.
	Bytes []byte

	// Handle names the registration to the endpoint that made it, and to no other (WSPRegisterMemory).
	Handle Handle

	// Descriptor is what the peer needs to reach the memory; zero for memory that is not exposed.
	Descriptor Descriptor
}

// Handle identifies a registration within one endpoint of this process. The zero Handle is none.
// A handle is not used again during the life of its endpoint.
type Handle uint64

// Descriptor names exposed memory to the connected peer (the RDMA buffer descriptor of
// WSPRegisterRdmaMemory). Its content is the provider's; to everybody else it is opaque, is sent
// as it is, and may be forged by the peer.
type Descriptor [24]byte

// Rights are what the peer may do with exposed memory.
type Rights uint8

const (
	RightRead  Rights = 1 << iota // the peer may RDMA-read it (MEM_READ)
	RightWrite                    // the peer may RDMA-write it (MEM_WRITE)
)

// Segment is local memory that an operation uses: Bytes lies within the registration that Handle names.
type Segment struct {
	Bytes  []byte
	Handle Handle
}

// Segment returns the n bytes of the region from off on. It panics where they are out of the region's bounds.
func (r Region) Segment(off, n int) Segment {
	return Segment{Bytes: r.Bytes[off : off+n : off+n], Handle: r.Handle}
}
