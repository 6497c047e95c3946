package sanswitch

import (
	"cmp"
	"net/netip"
	"slices"

	"sansock/provider"
)

// way is how to reach the addresses of one network.
type way struct {
	provider provider.Provider
	rank     int          // of the provider, 0 for the most preferred one
	local    netip.Addr   // address of this host in the network
	network  netip.Prefix // masked
}

// index finds ways by address, whatever their number. It never changes.
type index struct {
	bits     [families][]int        // the lengths of prefixes that there are, longest first
	networks map[netip.Prefix][]way // one way for each provider, in order of preference
	hosts    [families]map[int]way  // one for each provider with an address of the family, by rank
}

// The families of addresses.
const (
	family4 = iota
	family6
	families
)

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return family4
	}
	return family6
}

// newIndex returns an index of ways, those of preferred providers first.
func newIndex(ways []way) *index {
	x := &index{networks: make(map[netip.Prefix][]way, len(ways))}
	for i := range x.hosts {
		x.hosts[i] = make(map[int]way)
	}
	for _, w := range ways {
		known := x.networks[w.network]
		if known == nil {
			x.bits[familyOf(w.local)] = insert(x.bits[familyOf(w.local)], w.network.Bits())
		}
		if !hasRank(known, w.rank) {
			x.networks[w.network] = append(known, w)
		}
		if _, ok := x.hosts[familyOf(w.local)][w.rank]; !ok {
			x.hosts[familyOf(w.local)][w.rank] = w
		}
	}
	return x
}

// insert adds a length to a list of few, unless it is there.
func insert(bits []int, n int) []int {
	longer := func(have, n int) int { return cmp.Compare(n, have) }
	i, found := slices.BinarySearchFunc(bits, n, longer)
	if found {
		return bits
	}
	return slices.Insert(bits, i, n)
}

// to returns the ways to dst, the best first, one for each provider at most.
func (x *index) to(dst netip.Addr) (found []way) {
	for _, n := range x.bits[familyOf(dst)] {
		network, err := dst.Prefix(n)
		if err != nil {
			continue
		}
		for _, w := range x.networks[network] {
			if !hasRank(found, w.rank) {
				found = append(found, w)
			}
		}
	}
	return found
}

// at returns a way for each provider that may serve the local address, in order of preference:
// any one of a network in which the host has an address may be its own too, like all of
// 127.0.0.0/8. An unspecified address is served by all that serve some address of its family.
func (x *index) at(local netip.Addr) (found []way) {
	if local.IsUnspecified() {
		for _, w := range x.hosts[familyOf(local)] {
			found = append(found, w)
		}
	} else {
		found = x.to(local)
	}
	slices.SortFunc(found, func(a, b way) int { return cmp.Compare(a.rank, b.rank) })
	return found
}

func hasRank(ways []way, rank int) bool {
	return slices.ContainsFunc(ways, func(w way) bool { return w.rank == rank })
}

// unmap returns the prefix of IPv4 addresses that p is, if it is one of IPv4-mapped IPv6 addresses.
func unmap(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}
