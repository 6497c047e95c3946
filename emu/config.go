package emu

import "net/netip"

// Config is the shape of an emulated SAN. Its zero value is a good default.
type Config struct {
	// Fabric is where the provider is: those on one fabric reach each other. nil: the one that all
	// processes of the user on this host share.
	Fabric *Fabric

	// SameProcess leaves other processes out. They are also where a limit below is tighter than
	// what shared memory offers, or a knob asks for what it does not have.
	SameProcess bool

	// Name is the provider's name, by default "emu".
	Name string

	// Prefixes replaces the addresses of this host as what the provider serves.
	Prefixes func() ([]netip.Prefix, error)

	// Attributes of the provider, see provider.Attributes. 0 is the default that is given here.
	MaxMessage    int // 1 MiB; at most 1 GiB
	MaxInline     int // as MaxMessage; negative: none
	MaxRDMA       int // 1 GiB
	RDMAThreshold int // 32 KiB
	MaxRecvs      int // 4096
	MaxSends      int // 4096
	MaxRDMAs      int // 256
	Buffered      int // 128 KiB; negative: no preference

	// NoAppend leaves the extension provider.Appender out.
	NoAppend bool

	// NoRDMARead leaves the extension out, and memory cannot be exposed for reading.
	NoRDMARead bool

	// LocalRegistration makes registration of the local memory of RDMA operations a must.
	LocalRegistration bool

	// Memory limits what the proxy driver has to give.
	Memory Memory

	// Link is the shape of what this provider's endpoints send.
	Link Link

	// Completions are how completions are reported to this provider's endpoints.
	Completions Completions

	// Faults makes steps fail.
	Faults Faults
}

func or(v, def int) int {
	if v == 0 {
		return def
	}
	return max(v, 0)
}
