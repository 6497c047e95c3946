package sanswitch

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"

	"sansock/provider"
)

// How long the prefix table is used before the providers are asked again. Addresses come and go, so a
// miss is doubted sooner than a hit.
const (
	tableTTL = 2 * time.Second
	missTTL  = 100 * time.Millisecond
)

// table knows which provider reaches which addresses.
type table struct {
	providers []provider.Provider // in order of preference

	mu sync.Mutex // above the providers' locks: they are asked with it held
	// +checklocks:mu
	ways []way // longest prefix first, then in order of preference
	// +checklocks:mu
	err error // why the ways of a provider are missing
	// +checklocks:mu
	asked time.Time
}

// way is how to reach the addresses of one network.
type way struct {
	provider provider.Provider
	rank     int          // of the provider, 0 for the most preferred one
	local    netip.Addr   // address of this host in the network
	network  netip.Prefix // masked
}

func newTable(ps []provider.Provider) *table { return &table{providers: ps} }

// lookup returns the ways to dst, the best first, one for each provider at most. If there are none, the error
// says why that may be.
func (t *table) lookup(dst netip.Addr) ([]way, error) {
	dst = dst.Unmap().WithZone("")
	return t.find(func(ways []way) (found []way) {
		for _, w := range ways {
			if w.network.Contains(dst) && !hasRank(found, w.rank) {
				found = append(found, w)
			}
		}
		return found
	})
}

// serving returns a way for each provider that serves the local address, in order of preference. An unspecified address is
// served by all that serve some address of its family. If there are none, the error says why that may be.
func (t *table) serving(local netip.Addr) ([]way, error) {
	local = local.Unmap().WithZone("")
	return t.find(func(ways []way) (found []way) {
		for _, w := range ways {
			if serves(w, local) && !hasRank(found, w.rank) {
				found = append(found, w)
			}
		}
		slices.SortFunc(found, func(a, b way) int { return cmp.Compare(a.rank, b.rank) })
		return found
	})
}

// serves reports whether local may be an address that the provider of w listens at: any one of a network in
// which the host has an address may be its own too, like all of 127.0.0.0/8.
func serves(w way, local netip.Addr) bool {
	if local.IsUnspecified() {
		return local.Is4() == w.local.Is4()
	}
	return w.network.Contains(local)
}

func hasRank(ways []way, rank int) bool {
	return slices.ContainsFunc(ways, func(w way) bool { return w.rank == rank })
}

// find looks into a table that is fresh enough for a hit, or else for a miss.
func (t *table) find(look func([]way) []way) ([]way, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	asked := t.ask(tableTTL)
	found := look(t.ways)
	if len(found) == 0 && !asked && t.ask(missTTL) {
		found = look(t.ways)
	}
	if len(found) == 0 {
		return nil, t.err
	}
	return found, nil
}

// ask rebuilds the table if it is older than ttl.
//
// +checklocks:t.mu
func (t *table) ask(ttl time.Duration) bool {
	if now := time.Now(); t.asked.IsZero() || now.Sub(t.asked) >= ttl {
		t.asked = now
	} else {
		return false
	}
	t.ways, t.err = nil, nil
	for rank, p := range t.providers {
		prefixes, err := p.Prefixes()
		if err != nil && t.err == nil {
			t.err = err
		}
		for _, prefix := range prefixes {
			if prefix = unmap(prefix); prefix.IsValid() {
				t.ways = append(t.ways, way{provider: p, rank: rank, local: prefix.Addr(), network: prefix.Masked()})
			}
		}
	}
	slices.SortStableFunc(t.ways, func(a, b way) int { return cmp.Compare(b.network.Bits(), a.network.Bits()) })
	return true
}

// unmap returns the prefix of IPv4 addresses that p is, if it is one of IPv4-mapped IPv6 addresses.
func unmap(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}
