//go:build linux

package shm

import "sansock/provider"

// PeerOf returns the process at the other end of a connection of this package; ok is false for any other.
func PeerOf(e provider.Endpoint) (p Peer, ok bool) {
	x, ok := e.(*endpoint)
	if !ok {
		return p, false
	}
	return x.l.peer, true
}
