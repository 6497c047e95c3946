package sanswitch

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
)

// manyWays returns one way to each of n addresses.
func manyWays(n int) []way {
	ways := make([]way, n)
	for i := range ways {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], 10<<24+uint32(i))
		a := netip.AddrFrom4(b)
		ways[i] = way{local: a, network: netip.PrefixFrom(a, 32)}
	}
	return ways
}

// However many ways there are, a look-up takes as many steps as there are lengths of prefixes.
func TestIndexOfMany(t *testing.T) {
	ways := append(manyWays(20_000), way{rank: 1, local: netip.MustParseAddr("10.0.0.1"), network: netip.MustParsePrefix("10.0.0.0/8")})
	x := newIndex(ways)
	assert.Equal(t, []int{32, 8}, x.bits[family4])
	assert.Empty(t, x.bits[family6])
	for i, w := range ways[:20_000] {
		assert.Equal(t, []way{w, ways[20_000]}, x.to(w.local), i)
	}
	assert.Equal(t, ways[20_000:], x.to(netip.MustParseAddr("10.200.0.1")))
	assert.Empty(t, x.to(netip.MustParseAddr("11.0.0.1")))
	assert.Empty(t, x.to(netip.MustParseAddr("::1")))
	assert.Equal(t, []way{ways[0], ways[20_000]}, x.at(netip.IPv4Unspecified()))
	assert.Empty(t, x.at(netip.IPv6Unspecified()))
}

func BenchmarkIndex(b *testing.B) {
	ways := manyWays(20_000)
	b.Run("make", func(b *testing.B) {
		for b.Loop() {
			newIndex(ways)
		}
	})
	x := newIndex(ways)
	b.Run("miss", func(b *testing.B) {
		for b.Loop() {
			x.to(netip.AddrFrom4([4]byte{192, 0, 2, 1}))
		}
	})
}
