package ofi

import (
	"encoding/binary"

	"sansock/provider"
)

// private is what rides with a connection request, or an answer to it, within the 55 bytes that every fabric carries:
//
//	0  magic   "sns1"
//	4  kind    u8
//	5  length  u8   of what follows
//	6  request: the port dialed, u16, and the dialer's own, u16, 0 if that is the fabric's number
//	   answer:  the reason given to Reject
//
// Integers are little-endian. Fabrics may append junk. The magic tells a peer of this package from others, and a rejection
// from the fabric's own refusal, which says that nothing listens.
type private struct {
	kind          kind
	dialed, local uint16 // of a request
	reason        []byte // of an answer
}

type kind uint8

const (
	kindRequest kind = iota + 1
	kindAccept       // an answer, like those that follow
	kindRefuse       // refused, as TCP would have been
	kindNone         // nothing listens at the port dialed: this is another one's
	kindFailed       // the listener was not able to
	kinds
)

const (
	magic         = "sns1"
	privateHeader = len(magic) + 2
	maxPrivate    = 55
)

var _ [maxPrivate - privateHeader - provider.MaxReject]struct{} // a reason fits

func (p private) encode() []byte {
	b := make([]byte, privateHeader, maxPrivate)
	copy(b, magic)
	b[len(magic)] = byte(p.kind)
	if p.kind == kindRequest {
		b = binary.LittleEndian.AppendUint16(b, p.dialed)
		b = binary.LittleEndian.AppendUint16(b, p.local)
	} else {
		b = append(b, p.reason[:min(len(p.reason), provider.MaxReject)]...)
	}
	b[len(magic)+1] = byte(len(b) - privateHeader)
	return b
}

// decodePrivate decodes what a peer sent. What this package has not sent is not ok.
func decodePrivate(b []byte) (p private, ok bool) {
	if len(b) < privateHeader || string(b[:len(magic)]) != magic {
		return p, false
	}
	p.kind = kind(b[len(magic)])
	n, body := int(b[len(magic)+1]), b[privateHeader:]
	if p.kind == 0 || p.kind >= kinds || n > len(body) || n > maxPrivate-privateHeader {
		return p, false
	}
	if body = body[:n]; p.kind != kindRequest {
		p.reason = body[:min(n, provider.MaxReject)]
		return p, true
	}
	if n < 4 {
		return p, false
	}
	p.dialed = binary.LittleEndian.Uint16(body)
	p.local = binary.LittleEndian.Uint16(body[2:])
	return p, true
}
