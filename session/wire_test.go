package session

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/provider"
)

func TestHeaderBytes(t *testing.T) {
	b := encode(header{kind: kindData, flags: flagMore | flagBlocked, credits: 0x0102, arg: 0x0807060504030201}, []byte("hi"))
	assert.Equal(t, []byte{4, 3, 2, 1, 2, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 'h', 'i'}, b)
	h, err := parseHeader(b)
	require.NoError(t, err)
	assert.Equal(t, header{kind: kindData, flags: 3, credits: 0x0102, length: 2, arg: 0x0807060504030201}, h)
}

// The numbers are on the wire: they must not move.
func TestKindNumbers(t *testing.T) {
	for n, k := range map[int]kind{1: kindCredit, 2: kindNop, 3: kindReady, 4: kindData, 5: kindResize, 6: kindFin, 7: kindClose,
		8: kindClosed, 9: kindAbort, 10: kindOffer, 11: kindDone, 12: kindTarget, 13: kindWrote, 14: kindRevoke, 15: kindUntarget,
		16: kindPing, 17: kindPong, 18: kindUrgent, 19: kindTaken} {
		assert.EqualValues(t, n, k, k.String())
	}
	assert.Equal(t, []int{1, 2, 4, 8, 16}, []int{flagMore, flagBlocked, flagDrain, flagDirect, flagOpen})
	assert.Equal(t, []int{1, 2, 3, 4}, []int{abortReset, abortProtocol, abortTimeout, abortFailed})
	assert.Equal(t, []int{1, 2, 3}, []int{RefusedMemory, RefusedVersion, RefusedBusy})
	assert.Equal(t, "data", kindData.String())
	assert.Equal(t, "kind 0", kind(0).String())
	assert.Equal(t, "kind 200", kind(200).String())
}

func TestHeaderMalformed(t *testing.T) {
	good := encode(header{kind: kindData}, []byte("abc"))
	with := func(at int, v byte) []byte {
		b := append([]byte(nil), good...)
		b[at] = v
		return b
	}
	for name, b := range map[string][]byte{
		"empty":          nil,
		"short":          good[:headerSize-1],
		"kind 0":         with(0, 0),
		"unknown kind":   with(0, byte(kinds)),
		"length over":    with(4, 4),
		"length under":   with(4, 2),
		"length huge":    with(7, 255),
		"payload cut":    good[:len(good)-1],
		"payload longer": append(append([]byte(nil), good...), 0),
	} {
		_, err := parseHeader(b)
		assert.ErrorIs(t, err, ErrProtocol, name)
	}
}

func TestPayloadsMalformed(t *testing.T) {
	for name, o := range map[string]offer{"nothing": {}, "too long": {total: maxTransfer + 1}, "all bits": {total: 1<<64 - 1}} {
		_, err := parseOffer(o.bytes())
		assert.ErrorIs(t, err, ErrProtocol, name)
	}
	b := offer{total: 1}.bytes()
	b[8] = 2
	_, err := parseOffer(b)
	assert.ErrorIs(t, err, ErrProtocol, "mode")
	_, err = parseOffer(b[:offerSize-1])
	assert.ErrorIs(t, err, ErrProtocol, "short")
	_, err = parseOffer(offer{total: maxTransfer}.bytes())
	assert.NoError(t, err)

	for name, tg := range map[string]target{"nothing": {}, "too long": {length: maxTransfer + 1}} {
		_, err := parseTarget(tg.bytes())
		assert.ErrorIs(t, err, ErrProtocol, name)
	}
	tb := target{length: 1}.bytes()
	_, err = parseTarget(tb[:targetSize-1])
	assert.ErrorIs(t, err, ErrProtocol, "short")
	_, err = parseTarget(append(tb, 0))
	assert.ErrorIs(t, err, ErrProtocol, "long")

	_, err = parseCount(make([]byte, 7))
	assert.ErrorIs(t, err, ErrProtocol, "short")
	_, err = parseCount(make([]byte, 9))
	assert.ErrorIs(t, err, ErrProtocol, "long")
}

func FuzzHeader(f *testing.F) {
	for k := kindCredit; k <= kinds; k++ {
		f.Add(encode(header{kind: k, flags: uint8(k), credits: uint16(k) << 8, arg: ^uint64(k)}, []byte("payload")[:k%8]))
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHeader(b)
		if err != nil {
			require.ErrorIs(t, err, ErrProtocol)
			return
		}
		require.True(t, h.kind > 0 && h.kind < kinds)
		if h.kind == kindData && h.flags&flagOpen != 0 {
			require.LessOrEqual(t, int(h.length), len(b)-headerSize, "it may have grown")
		} else {
			require.EqualValues(t, len(b)-headerSize, h.length)
		}
		var again [headerSize]byte
		h.put(again[:])
		require.Equal(t, b[:headerSize], again[:])
	})
}

func FuzzOffer(f *testing.F) {
	f.Add(offer{total: 1, read: true, desc: provider.Descriptor{1, 2, 3}}.bytes())
	f.Add(append(offer{total: maxTransfer}.bytes(), "the first bytes"...))
	f.Add(offer{}.bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := parseOffer(b)
		if err != nil {
			require.ErrorIs(t, err, ErrProtocol)
			return
		}
		require.True(t, o.total > 0 && o.total <= maxTransfer)
		require.Equal(t, b[:offerSize], o.bytes())
	})
}

func FuzzTarget(f *testing.F) {
	f.Add(target{length: 1, desc: provider.Descriptor{1, 2, 3}}.bytes())
	f.Add(target{length: maxTransfer}.bytes())
	f.Add(target{}.bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		tg, err := parseTarget(b)
		if err != nil {
			require.ErrorIs(t, err, ErrProtocol)
			return
		}
		require.True(t, tg.length > 0 && tg.length <= maxTransfer)
		require.Equal(t, b, tg.bytes())
	})
}

func FuzzCount(f *testing.F) {
	f.Add(count(0))
	f.Add(count(1<<64 - 1))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := parseCount(b)
		if err != nil {
			require.ErrorIs(t, err, ErrProtocol)
			return
		}
		require.Equal(t, b, count(n))
	})
}
