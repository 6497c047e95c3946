package session

import (
	"encoding/binary"
	"net/netip"
)

// tokenSize is the size of the secret that opens a suspended session: 256 bits.
const tokenSize = 32

type token [tokenSize]byte

// ticket is where and how a suspended session goes on.
type ticket struct {
	token token
	addr  netip.AddrPort
}

const ticketSize = tokenSize + 16 + 2

func (t ticket) append(b []byte) []byte {
	b = append(b, t.token[:]...)
	a := t.addr.Addr().As16()
	b = append(b, a[:]...)
	return binary.LittleEndian.AppendUint16(b, t.addr.Port())
}

// parseTicket decodes a ticket. IPv4 addresses come mapped to IPv6.
func parseTicket(b []byte) (t ticket, err error) {
	if len(b) < ticketSize {
		return t, protocolError("ticket of %d bytes", len(b))
	}
	copy(t.token[:], b)
	addr := netip.AddrFrom16([16]byte(b[tokenSize:])).Unmap()
	t.addr = netip.AddrPortFrom(addr, binary.LittleEndian.Uint16(b[tokenSize+16:]))
	if addr.IsUnspecified() || t.addr.Port() == 0 {
		return t, protocolError("ticket for %v", t.addr)
	}
	return t, nil
}
