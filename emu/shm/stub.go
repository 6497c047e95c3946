//go:build !linux

package shm

import (
	"context"
	"net/netip"

	"sansock/provider"
)

// Node is what a process needs to reach others, which it cannot on this system.
type Node struct{ Config }

// Request is a connection request of another process. There are none on this system.
type Request struct{ provider.EarlyRequest }

// Refuse does nothing.
func (r *Request) Refuse(provider.Status, []byte) error { return nil }

// Rendezvous is an address at which other processes find this one.
type Rendezvous struct{}

// Open returns a node that finds nobody.
func Open(c Config) *Node {
	c.defaults()
	return &Node{c}
}

// Attributes returns the zero attributes.
func Attributes() provider.Attributes { return provider.Attributes{} }

// Bind fails with StatusUnsupported.
func (n *Node) Bind(netip.AddrPort, Acceptor) (*Rendezvous, error) {
	return nil, n.failure("listen", provider.StatusUnsupported, nil)
}

// Dial fails with StatusNoListener.
func (n *Node) Dial(context.Context, netip.AddrPort, netip.AddrPort) (provider.Endpoint, error) {
	return nil, n.failure("dial", provider.StatusNoListener, nil)
}

// DialEarly fails with StatusNoListener.
func (n *Node) DialEarly(ctx context.Context, local, remote netip.AddrPort, begin func(provider.Endpoint) error) (provider.Endpoint, error) {
	return n.Dial(ctx, local, remote)
}

// PeerOf knows of no other process.
func PeerOf(provider.Endpoint) (Peer, bool) { return Peer{}, false }

// Close does nothing.
func (n *Node) Close() error { return nil }

// Close does nothing.
func (r *Rendezvous) Close() error { return nil }
