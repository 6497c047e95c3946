// Package ofi is the provider for real fabrics, by libfabric (OpenFabrics Interfaces): InfiniBand, RoCE and iWARP through its
// verbs provider, and, for tests and comparison, plain sockets through its tcp provider.
//
// It is built with the tag ofi, on Linux, with cgo and the headers of libfabric (Debian: libfabric-dev). The library itself
// (libfabric1) is opened at first use, so one binary runs with and without it. Otherwise Open fails with an
// error that is errors.ErrUnsupported. docs/fabrics.md says what to know about hardware, limits and containers.
//
// Every connection has a protection domain, a completion queue and a goroutine of its own: nobody else's key reaches its
// memory, nobody else's load overruns its queue, and an idle one sleeps in Go's network poller.
package ofi

// Config says which fabric to open. Empty fields are taken from the environment, whose variables are named below.
type Config struct {
	// Fabric is the libfabric provider: "verbs", or "tcp". Empty (SANNET_OFI_FABRIC): the best that has a device, which does
	// not include tcp. As plain TCP does the same without a detour, and as the tcp provider of libfabric
	// trusts its peers, that is only used if it is asked for.
	Fabric string

	// Device is the libfabric domain to use alone, such as mlx5_0, or eth0 for tcp (SANNET_OFI_DEVICE). Empty: all.
	Device string
}

// name is the name of the provider.
const name = "ofi"
