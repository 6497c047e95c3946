package sanswitch

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/provider"
)

// prefixed is a provider of which there are but the prefixes.
type prefixed struct {
	provider.Provider
	name  string
	list  []netip.Prefix
	err   error
	asked int
}

func (p *prefixed) Name() string { return p.name }
func (p *prefixed) Close() error { return nil }

func (p *prefixed) Prefixes() ([]netip.Prefix, error) {
	p.asked++
	return p.list, p.err
}

func serving(name string, prefixes ...string) *prefixed {
	p := &prefixed{name: name}
	for _, s := range prefixes {
		p.list = append(p.list, netip.MustParsePrefix(s))
	}
	return p
}

func names(ways []way) []string {
	ns := []string{}
	for _, w := range ways {
		ns = append(ns, w.provider.Name())
	}
	return ns
}

func TestTableLookup(t *testing.T) {
	tab := newTable([]provider.Provider{
		serving("a", "10.1.0.5/16", "192.168.7.1/24", "fd00::1/64"),
		serving("b", "10.1.2.5/24", "192.168.7.2/24", "fd00::2/64", "10.1.0.6/16", "127.0.0.1/8"),
		serving("c", "::ffff:172.16.0.1/108", "0.0.0.0/0"),
		serving("d", "fe80::1/64"),
	})
	for _, c := range []struct {
		dst   string
		want  []string
		local string // of the first way
	}{
		{"10.1.2.9", []string{"b", "a", "c"}, "10.1.2.5"},
		{"10.1.3.9", []string{"a", "b", "c"}, "10.1.0.5"},
		{"::ffff:10.1.3.9", []string{"a", "b", "c"}, "10.1.0.5"},
		{"192.168.7.77", []string{"a", "b", "c"}, "192.168.7.1"},
		{"192.168.8.77", []string{"c"}, "0.0.0.0"},
		{"172.17.0.1", []string{"c"}, "172.16.0.1"},
		{"127.1.2.3", []string{"b", "c"}, "127.0.0.1"},
		{"fd00::77", []string{"a", "b"}, "fd00::1"},
		{"fd01::77", []string{}, ""},
		{"fe80::77%eth0", []string{"d"}, "fe80::1"},
		{"::1", []string{}, ""},
	} {
		ways, err := tab.lookup(netip.MustParseAddr(c.dst))
		require.NoError(t, err)
		assert.Equal(t, c.want, names(ways), c.dst)
		if len(ways) > 0 {
			assert.Equal(t, c.local, ways[0].local.String(), c.dst)
		}
	}
}

func TestTableServing(t *testing.T) {
	tab := newTable([]provider.Provider{
		serving("a", "10.1.0.5/16", "10.1.2.5/24"),
		serving("b", "10.1.2.6/24", "fd00::2/64"),
		serving("c", "fd00::3/64"),
	})
	for _, c := range []struct {
		local string
		want  []string
	}{
		{"10.1.2.6", []string{"a", "b"}}, // the order of preference, whatever the prefixes
		{"10.1.9.9", []string{"a"}},
		{"0.0.0.0", []string{"a", "b"}},
		{"::", []string{"b", "c"}},
		{"fd00::3", []string{"b", "c"}},
		{"127.0.0.1", []string{}},
	} {
		ways, err := tab.serving(netip.MustParseAddr(c.local))
		require.NoError(t, err)
		assert.Equal(t, c.want, names(ways), c.local)
	}
}

func TestTableIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serving("a", "10.1.0.5/16")
		tab := newTable([]provider.Provider{p})
		hit, miss := netip.MustParseAddr("10.1.1.1"), netip.MustParseAddr("10.2.1.1")
		found := func(a netip.Addr) int {
			ways, _ := tab.lookup(a)
			return len(ways)
		}

		assert.Equal(t, 1, found(hit))
		assert.Equal(t, 0, found(miss))
		assert.Equal(t, 1, p.asked, "a table just made answers for misses too")

		time.Sleep(missTTL)
		assert.Equal(t, 1, found(hit))
		assert.Equal(t, 1, p.asked)
		assert.Equal(t, 0, found(miss))
		assert.Equal(t, 2, p.asked)

		p.list = append(p.list, netip.MustParsePrefix("10.2.0.5/16"))
		assert.Equal(t, 0, found(miss))
		time.Sleep(missTTL)
		assert.Equal(t, 1, found(miss), "the new network")
		assert.Equal(t, 3, p.asked)

		p.list = nil
		time.Sleep(tableTTL - 1)
		assert.Equal(t, 1, found(hit))
		time.Sleep(time.Nanosecond)
		assert.Equal(t, 0, found(hit), "the network that is gone")
		assert.Equal(t, 4, p.asked)
	})
}

func TestTableOfProviderThatCannotTell(t *testing.T) {
	broken := errors.New("broken")
	a, b := serving("a"), serving("b", "10.1.0.5/16")
	a.err = broken
	tab := newTable([]provider.Provider{a, b})
	ways, err := tab.lookup(netip.MustParseAddr("10.1.1.1"))
	assert.NoError(t, err, "another one serves it")
	assert.Equal(t, []string{"b"}, names(ways))
	ways, err = tab.lookup(netip.MustParseAddr("10.2.1.1"))
	assert.Equal(t, broken, err)
	assert.Empty(t, ways)
}
