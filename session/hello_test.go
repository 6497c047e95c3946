package session

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/provider"
)

// helloSeeds are hellos as they are sent.
var helloSeeds = []hello{
	{kind: helloOffer, minVersion: version, maxVersion: version, receives: 8, size: 256, modes: modeReader | modeReadable},
	{kind: helloAnswer, minVersion: version, maxVersion: version, receives: 6, size: 256},
	{kind: helloOffer, minVersion: 1, maxVersion: 7, receives: 65535, size: 1<<32 - 1, modes: 255},
	{kind: helloRefuse, minVersion: version, maxVersion: version, refusal: RefusedMemory},
	{kind: helloRefuse, minVersion: 9, maxVersion: 9, refusal: RefusedBusy},
	{kind: helloAnswer, minVersion: version, maxVersion: version, receives: 6, size: 256, features: 0x80000001},
}

func TestHelloBytes(t *testing.T) {
	assert.Equal(t, []byte{'S', 'O', 'C', 'K', 1, 2, 2, 0, 1, 6, 8, 0, 0, 1, 0, 0, 2, 1, 3}, helloSeeds[0].append(nil))
	assert.Equal(t, []byte{'S', 'O', 'C', 'K', 3, 2, 2, 0, 3, 1, 1}, helloSeeds[3].append(nil))
	assert.Equal(t, []byte{4, 4, 1, 0, 0, 0x80}, helloSeeds[5].append(nil)[19:])
	for _, h := range helloSeeds {
		b := h.append(nil)
		got, err := parseHello(b)
		require.NoError(t, err)
		assert.Equal(t, h, got)
		assert.LessOrEqual(t, len(b), provider.MaxFirstMessage)
	}
}

func TestHelloMalformed(t *testing.T) {
	good := helloSeeds[0].append(nil)
	fixed := good[:helloFixed:helloFixed]
	receives, modes := good[8:16], good[16:19]
	with := func(at int, v byte) []byte {
		b := append([]byte(nil), good...)
		b[at] = v
		return b
	}
	join := func(parts ...[]byte) []byte {
		b := append([]byte(nil), fixed...)
		for _, p := range parts {
			b = append(b, p...)
		}
		return b
	}
	for name, b := range map[string][]byte{
		"empty":               nil,
		"short":               good[:7],
		"magic":               with(0, 's'),
		"HTTP":                []byte("GET / HTTP/1.0\r\n\r\n"),
		"kind 0":              with(4, 0),
		"kind 4":              with(4, 4),
		"versions backwards":  with(5, 3),
		"no fields":           fixed,
		"no modes":            join(receives),
		"no receives":         join(modes),
		"receives twice":      join(receives, receives, modes),
		"modes twice":         join(receives, modes, modes),
		"receives short":      join([]byte{tagReceives, 5, 8, 0, 0, 1, 0}, modes),
		"modes short":         join(receives, []byte{tagModes, 0}),
		"features short":      join(receives, modes, []byte{tagFeatures, 3, 1, 0, 0}),
		"features twice":      join(receives, modes, []byte{tagFeatures, 4, 1, 0, 0, 0, tagFeatures, 4, 1, 0, 0, 0}),
		"few receives":        with(10, minReceives-1),
		"small receives":      with(13, 0),
		"cut in a length":     good[:len(good)-2],
		"cut in a value":      good[:len(good)-1],
		"unknown cut":         join(receives, modes, []byte{200, 9, 1}),
		"refusal, no code":    with(4, helloRefuse),
		"refusal, code short": {'S', 'O', 'C', 'K', helloRefuse, 1, 1, 0, tagRefusal, 0},
	} {
		_, err := parseHello(b)
		assert.ErrorIs(t, err, ErrProtocol, name)
	}
}

// What a later version adds is skipped.
func TestHelloSkipsUnknown(t *testing.T) {
	good := helloSeeds[0].append(nil)
	b := append([]byte(nil), good[:helloFixed]...)
	b[7] = 99                        // reserved
	b = append(b, 77, 3, 1, 2, 3)    // unknown field
	b = append(b, 77, 0)             // twice, empty
	b = append(b, tagReceives, 8)    // a longer field
	b = append(b, good[10:16]...)    //
	b = append(b, 0xaa, 0xbb)        //
	b = append(b, tagModes, 2, 3, 9) //
	b = append(b, tagRefusal, 1, 5)  // means nothing here
	got, err := parseHello(b)
	require.NoError(t, err)
	want := helloSeeds[0]
	want.refusal = 5
	assert.Equal(t, want, got)

	// Of a version that is not shared, only the versions count.
	got, err = parseHello([]byte{'S', 'O', 'C', 'K', helloOffer, 3, 4, 0})
	require.NoError(t, err)
	assert.Equal(t, hello{kind: helloOffer, minVersion: 3, maxVersion: 4}, got)
}

func FuzzHello(f *testing.F) {
	for _, h := range helloSeeds {
		b := h.append(nil)
		f.Add(b)
		f.Add(append(b, 77, 3, 1, 2, 3))
		f.Add(append(append(b, tagToken, tokenSize), bytes.Repeat([]byte{1}, tokenSize)...))
		f.Add(b[:len(b)-1])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHello(b)
		if err != nil {
			require.ErrorIs(t, err, ErrProtocol)
			return
		}
		require.LessOrEqual(t, h.minVersion, h.maxVersion)
		switch {
		case h.kind == helloRefuse:
			h.receives, h.size, h.modes, h.features = 0, 0, 0, 0 // a refusal's own encoding has none
		case h.kind != helloOffer && h.kind != helloAnswer && h.kind != helloResume:
			t.Fatalf("kind %d", h.kind)
		case h.minVersion <= version && version <= h.maxVersion:
			require.GreaterOrEqual(t, int(h.receives), minReceives)
			require.GreaterOrEqual(t, int(h.size), minBuffer)
		}
		if h.kind != helloRefuse {
			h.refusal = 0
		}
		if h.kind != helloResume {
			h.token = token{} // means nothing in others
		}
		again, err := parseHello(h.append(nil))
		require.NoError(t, err)
		require.Equal(t, h, again)
	})
}
