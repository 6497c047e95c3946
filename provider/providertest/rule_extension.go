package providertest

import (
	"errors"

	"sansock/provider"
)

var extensionRules = []rule{
	{Rule{"extension/unknown", "Unknown extensions are an error that is errors.ErrUnsupported."}, provesUnknownExtension},
	{Rule{"extension/rdma-read", "GUIDRDMARead is an RDMAReader exactly where Attributes.RDMARead says so."},
		provesReadExtension},
	{Rule{"extension/cache", "GUIDCacheCallback is a CacheInvalidator, or unsupported."}, provesCacheExtension},
}

func (e *end) unsupported(id provider.GUID) {
	ext, err := e.ep.Extension(id)
	if err == nil || !errors.Is(err, errors.ErrUnsupported) {
		e.x.errorf("%s: Extension(% x): %v, it should be unsupported", e.name, id, err)
	}
	if ext != nil {
		e.x.errorf("%s: Extension(% x) is a %T beside the error %v", e.name, id, ext, err)
	}
}

func provesUnknownExtension(x *rig) {
	a, b := x.connect()
	for _, e := range []*end{a, b} {
		e.unsupported(provider.GUID{})
		for _, known := range []provider.GUID{provider.GUIDRDMARead, provider.GUIDCacheCallback} {
			for i := range known {
				id := known
				id[i] ^= 0x10
				e.unsupported(id)
			}
		}
	}
}

func provesReadExtension(x *rig) {
	a, b := x.connect()
	for _, e := range []*end{a, b} {
		if e.attr.RDMARead {
			e.reader()
		} else {
			e.unsupported(provider.GUIDRDMARead)
		}
	}
}

func provesCacheExtension(x *rig) {
	x.eachWay(func(e, peer *end) {
		ext, err := e.ep.Extension(provider.GUIDCacheCallback)
		if err != nil {
			e.unsupported(provider.GUIDCacheCallback)
			return
		}
		c, ok := ext.(provider.CacheInvalidator)
		if !ok {
			x.fatalf("%s: Extension(GUIDCacheCallback) is a %T, no CacheInvalidator", e.name, ext)
		}
		m := x.mem(e, "memory", 8192)
		r := e.expose(m, provider.RightWrite)
		e.deregister(r)
		c.InvalidateCache(m.b)
		c.InvalidateCache(m.b[100:200])
		m.freeze()
		x.refused("a write to memory that was deregistered and dropped from the cache", peer, e,
			access{provider.OpWrite, r.Descriptor, 0, 64}, m)
	})
}
