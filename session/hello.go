package session

import (
	"encoding/binary"
)

// A hello is the first message of each side, at most provider.MaxFirstMessage bytes: magic, kind, range of
// versions, then fields of tag, length and value. Fields that the reader does not know are skipped, and bytes
// beyond the known ones of a field too, so that old and new versions talk. See docs/protocol.md.
const (
	helloMagic = 0x4b434f53 // "SOCK"
	version    = 2          // the only one that this code speaks

	helloOffer  = 1 // from the dialer
	helloAnswer = 2 // from the listening side
	helloRefuse = 3 // from the listening side, with a code
	helloResume = 4 // from a dialer who goes on with a session that is suspended
)

// Tags of hello fields.
const (
	tagReceives = 1 // u16 number and u32 size of the receives posted
	tagModes    = 2 // u8: mode bits
	tagRefusal  = 3 // u8: refusal code
	tagFeatures = 4 // u32: feature bits; none if missing
	tagToken    = 5 // 32 bytes: that of the suspended session
)

// Mode bits.
const (
	modeReader   = 1 << iota // the sender of the hello can RDMA-read the peer's memory
	modeReadable             // its memory can be RDMA-read
)

// Feature bits. What both hellos have may be used.
const (
	featureUrgent   = 1 << iota // urgent messages
	featureHandover             // the sender of the hello can wait for a peer that is handed over, and be handed over
	featureOpen                 // data messages may have been appended to

	features = featureUrgent | featureHandover | featureOpen // those of this version
)

const helloFixed = 8

// hello is a decoded hello.
type hello struct {
	kind       uint8
	minVersion uint8
	maxVersion uint8
	receives   uint16
	size       uint32
	modes      uint8
	refusal    uint8
	features   uint32
	token      token
}

func (h hello) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, helloMagic)
	b = append(b, h.kind, h.minVersion, h.maxVersion, 0)
	if h.kind == helloRefuse {
		return append(b, tagRefusal, 1, h.refusal)
	}
	b = append(b, tagReceives, 6)
	b = binary.LittleEndian.AppendUint16(b, h.receives)
	b = binary.LittleEndian.AppendUint32(b, h.size)
	b = append(b, tagModes, 1, h.modes)
	if h.kind == helloResume {
		b = append(b, tagToken, tokenSize)
		b = append(b, h.token[:]...)
	}
	if h.features != 0 {
		b = append(b, tagFeatures, 4)
		b = binary.LittleEndian.AppendUint32(b, h.features)
	}
	return b
}

// parseHello decodes and checks a hello.
func parseHello(b []byte) (h hello, err error) {
	if len(b) < helloFixed || binary.LittleEndian.Uint32(b) != helloMagic {
		return h, protocolError("no hello")
	}
	h.kind, h.minVersion, h.maxVersion = b[4], b[5], b[6]
	if h.kind < helloOffer || h.kind > helloResume || h.minVersion > h.maxVersion {
		return h, protocolError("malformed hello")
	}
	var seen [6]bool
	for b = b[helloFixed:]; len(b) > 0; {
		if len(b) < 2 || len(b) < 2+int(b[1]) {
			return h, protocolError("hello cut short")
		}
		tag, v := b[0], b[2:2+int(b[1])]
		b = b[2+len(v):]
		need := map[uint8]int{tagReceives: 6, tagModes: 1, tagRefusal: 1, tagFeatures: 4, tagToken: tokenSize}[tag]
		if need == 0 {
			continue
		}
		if len(v) < need || seen[tag] {
			return h, protocolError("malformed hello field %d", tag)
		}
		seen[tag] = true
		switch tag {
		case tagReceives:
			h.receives, h.size = binary.LittleEndian.Uint16(v), binary.LittleEndian.Uint32(v[2:])
		case tagModes:
			h.modes = v[0]
		case tagRefusal:
			h.refusal = v[0]
		case tagToken:
			copy(h.token[:], v)
		case tagFeatures:
			h.features = binary.LittleEndian.Uint32(v)
		}
	}
	if h.kind == helloRefuse {
		if !seen[tagRefusal] {
			return h, protocolError("refusal without a code")
		}
		return h, nil
	}
	if h.kind == helloResume && !seen[tagToken] {
		return h, protocolError("resume without a token")
	}
	// A version that we share promises the fields of version 2; one that we do not share, nothing.
	if h.minVersion <= version && version <= h.maxVersion {
		if !seen[tagReceives] || !seen[tagModes] || h.receives < minReceives || h.size < minBuffer {
			return h, protocolError("hello without usable receives")
		}
	}
	return h, nil
}
