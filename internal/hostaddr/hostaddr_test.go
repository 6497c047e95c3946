package hostaddr

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPrefixesOf(t *testing.T) {
	var addrs []netip.Addr
	for _, s := range []string{"127.0.0.1", "::1", "10.0.0.1", "::ffff:10.0.0.1", "10.0.0.1", "127.9.9.9", "fe80::1%eth0", "fe80::1%eth1"} {
		addrs = append(addrs, netip.MustParseAddr(s))
	}
	assert.Equal(t, append(loopback[:2:2], netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("fe80::1/128")),
		prefixesOf(append(addrs, netip.Addr{})))
}

// manyAddrs returns n addresses, all different.
func manyAddrs(n int) []netip.Addr {
	addrs := make([]netip.Addr, n)
	for i := range addrs {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], 10<<24+uint32(i))
		addrs[i] = netip.AddrFrom4(b)
	}
	return addrs
}

func BenchmarkPrefixesOf(b *testing.B) {
	addrs := manyAddrs(20_000)
	for b.Loop() {
		prefixesOf(addrs)
	}
}
