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
