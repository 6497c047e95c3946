//go:build linux

package shm

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"net/netip"

	"sansock/provider"
)

// Messages of the socket. A handshake is the listening side's greeting, the dialer's offer, and the listening side's. After that
// come messages of links.
const (
	magic      = 0x4d485353
	version    = 5
	idLen      = 16
	greetLen   = 4 + 1 + 1 + 1 + 1 + idLen
	offerLen   = greetLen + 8
	maxControl = 512 // a request with two addresses and a message of provider.MaxFirstMessage
)

var errWire = errors.New("malformed message")

// greeting is the first that a dialer hears. With its sender's credentials it is all that is read of a process that may be anybody's.
type greeting struct {
	min, max uint8
	refusal  refusal
	id       [idLen]byte // of the process
}

// offer is the rest of both parts of a handshake. It bears descriptors.
type offer struct {
	greeting
	what  what
	proof proof
	allow uint64 // how much memory the peer may have
}

// what the dialer wants, and gets.
type what uint8

const (
	wantLink  what = iota // there is no link yet
	wantProof             // there is one, and no proof that the process listens here, too
)

// proof is whether the last descriptor of an offer proves that its sender listens where it was asked.
type proof uint8

const (
	proofNone proof = iota
	proofSocket
)

// refusal is why there will be no link.
type refusal uint8

const (
	refusedNot refusal = iota
	refusedUser
	refusedMemory
	refusedClosed
	refusedLimit
)

var refusalText = [...]string{
	"", "another user listens there", "the peer has no memory", "the peer is closing", "the peer has too many links",
}

func (r refusal) Error() string {
	if int(r) < len(refusalText) {
		return refusalText[r]
	}
	return "refused by the peer"
}

// Is makes another user's listener a matter of permission.
func (r refusal) Is(target error) bool { return r == refusedUser && target == fs.ErrPermission }

func (g *greeting) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, magic)
	b = append(b, g.min, g.max, byte(g.refusal), 0)
	return append(b, g.id[:]...)
}

// parseGreeting decodes a greeting.
func parseGreeting(b []byte) (g greeting, err error) {
	if len(b) < greetLen || binary.LittleEndian.Uint32(b) != magic {
		return g, errWire
	}
	g.min, g.max, g.refusal = b[4], b[5], refusal(b[6])
	copy(g.id[:], b[8:])
	if g.min > version || g.max < version {
		return g, errors.New("the peer has another version")
	}
	return g, nil
}

func (o *offer) append(b []byte) []byte {
	b = o.greeting.append(b)
	b = append(b, byte(o.what), byte(o.proof))
	b = binary.LittleEndian.AppendUint16(b, 0)
	return binary.LittleEndian.AppendUint32(b, uint32(min(o.allow/page, 1<<32-1)))
}

// parseOffer decodes an offer. What a newer version puts behind it is skipped.
func parseOffer(b []byte) (o offer, err error) {
	if o.greeting, err = parseGreeting(b); err != nil {
		return o, err
	}
	if len(b) < offerLen {
		return o, errWire
	}
	b = b[greetLen:]
	o.what, o.proof = what(b[0]), proof(b[1])
	o.allow = page * uint64(binary.LittleEndian.Uint32(b[4:]))
	if o.what > wantProof || o.proof > proofSocket {
		return o, errWire
	}
	return o, nil
}

type ctlKind uint8

const (
	ctlRequest ctlKind = iota + 1 // a connection request
	ctlRefused                    // the answer to one; that it is accepted is an event
	ctlFin                        // the sender touches nothing of the connection any more
)

// control is a message of a link.
type control struct {
	kind   ctlKind
	conn   uint32
	inbox  ptr
	local  netip.AddrPort // as the dialer says it
	remote netip.AddrPort
	status provider.Status
	reason []byte
	first  []byte // of a request: the dialer's first message; nil: none yet
}

func (c *control) append(b []byte) []byte {
	b = append(b, byte(c.kind))
	b = binary.LittleEndian.AppendUint32(b, c.conn)
	switch c.kind {
	case ctlRequest:
		b = binary.LittleEndian.AppendUint64(b, uint64(c.inbox))
		b = appendAddr(b, c.local)
		b = appendAddr(b, c.remote)
		if c.first != nil {
			b = append(append(b, 1), c.first...)
		}
	case ctlRefused:
		b = append(append(b, byte(c.status)), c.reason...)
	case ctlFin:
		b = append(b, byte(c.status))
	}
	return b
}

func parseControl(b []byte) (c control, err error) {
	if len(b) < 5 {
		return c, errWire
	}
	c.kind, c.conn = ctlKind(b[0]), binary.LittleEndian.Uint32(b[1:])
	if c.conn >= maxConns {
		return c, errWire
	}
	b = b[5:]
	need := map[ctlKind]int{ctlRequest: 8, ctlRefused: 1, ctlFin: 1}[c.kind]
	if need == 0 || len(b) < need {
		return c, errWire
	}
	switch c.kind {
	case ctlRequest:
		c.inbox = ptr(binary.LittleEndian.Uint64(b))
		if c.local, b, err = cutAddr(b[8:]); err == nil {
			c.remote, b, err = cutAddr(b)
		}
		if err == nil && len(b) > 0 {
			if c.first = b[1:]; b[0] != 1 || len(c.first) > provider.MaxFirstMessage {
				err = errWire
			}
		}
		if err == nil && (c.local.Port() == 0 || c.remote.Port() == 0) {
			err = errWire
		}
	case ctlRefused:
		c.status, c.reason = provider.Status(b[0]), b[1:min(len(b), 1+provider.MaxReject)]
	case ctlFin:
		c.status = provider.Status(b[0])
	}
	if c.inbox>>ptrBits != 0 || c.inbox%grain != 0 {
		err = errWire
	}
	return c, err
}

// maxZone bounds the zones of addresses: an interface name has at most 15 bytes.
const maxZone = 32

func appendAddr(b []byte, a netip.AddrPort) []byte {
	x, _ := a.MarshalBinary() // never fails
	if len(x) > 18+maxZone {
		x = nil
	}
	return append(append(b, byte(len(x))), x...)
}

func cutAddr(b []byte) (a netip.AddrPort, rest []byte, err error) {
	if len(b) < 1 || len(b) < 1+int(b[0]) || b[0] > 18+maxZone {
		return a, nil, errWire
	}
	if err = a.UnmarshalBinary(b[1 : 1+b[0]]); err != nil || !a.IsValid() {
		return a, nil, errWire
	}
	return a, b[1+b[0]:], nil
}
