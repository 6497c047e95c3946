package ofi

import "math/rand/v2"

// Over sockets the SAN has no port space of its own: whoever listens on port 80 needs that for TCP, too. So port p of the
// SAN is TCP port p with the highest bit flipped, moved up where that falls among the reserved ones. There two ports
// of the SAN share one of TCP; which one is dialed is part of the request.

// carrier returns the TCP port that carries port p of the SAN.
func carrier(p uint16) uint16 {
	if p ^= 1 << 15; p < reserved {
		p += reserved
	}
	return p
}

const reserved = 1024 // ports below are for the superuser

// anyPort chooses a port of the SAN that has a good chance to be free, along with its carrier, which is below the ports that
// systems give to clients.
func anyPort() uint16 { return uint16(49152 + rand.IntN(1<<16-49152)) }
