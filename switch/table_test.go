package sanswitch

import (
	"context"
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

// askTo is lookup without limits.
func (t *table) askTo(dst string) ([]way, error) {
	return t.lookup(context.Background(), netip.MustParseAddr(dst), patient)
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
		ways, err := tab.askTo(c.dst)
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
		ways, err := tab.serving(t.Context(), netip.MustParseAddr(c.local), patient)
		require.NoError(t, err)
		assert.Equal(t, c.want, names(ways), c.local)
	}
}

// Where nobody tells of changes, a miss is doubted sooner than a hit.
func TestTableIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serving("a", "10.1.0.5/16")
		tab := newTable([]provider.Provider{p})
		tab.changes = func() (uint64, bool) { return 0, false }
		found := func(a string) int {
			ways, err := tab.askTo(a)
			assert.NoError(t, err)
			return len(ways)
		}
		const hit, miss = "10.1.1.1", "10.2.1.1"

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

// Where changes are told, they are seen at once, and misses cost nothing.
func TestTableIsToldOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serving("a", "10.1.0.5/16")
		tab := newTable([]provider.Provider{p})
		gen := uint64(7)
		tab.changes = func() (uint64, bool) { return gen, true }
		found := func(a string) int {
			ways, err := tab.askTo(a)
			assert.NoError(t, err)
			return len(ways)
		}
		const hit, miss = "10.1.1.1", "10.2.1.1"
		assert.Equal(t, 1, found(hit))
		time.Sleep(tableTTL - 1)
		assert.Equal(t, 0, found(miss))
		assert.Equal(t, 1, p.asked)

		p.list = []netip.Prefix{netip.MustParsePrefix("10.2.0.5/16")}
		gen++
		assert.Equal(t, 1, found(miss))
		assert.Equal(t, 0, found(hit))
		assert.Equal(t, 2, p.asked)

		time.Sleep(tableTTL)
		assert.Equal(t, 1, found(miss))
		assert.Equal(t, 3, p.asked, "a provider may know more than the host")
	})
}

// slowPrefixes is a provider that takes its time to say what it serves.
type slowPrefixes struct {
	*prefixed
	take time.Duration
}

func (p *slowPrefixes) Prefixes() ([]netip.Prefix, error) {
	time.Sleep(p.take)
	return p.prefixed.Prefixes()
}

// Whoever looks something up waits no longer than it likes, and several wait for the same reading.
func TestTableThatTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		p := &slowPrefixes{serving("a", "10.1.0.5/16", "127.0.0.1/8"), 100 * ms}
		tab := newTable([]provider.Provider{p})
		gen := uint64(1)
		tab.changes = func() (uint64, bool) { return gen, true }
		want := func(a string, patience time.Duration, n int, wantErr error, took time.Duration) {
			t.Helper()
			began := time.Now()
			ways, err := tab.lookup(t.Context(), netip.MustParseAddr(a), patience)
			assert.Len(t, ways, n)
			assert.Equal(t, wantErr, err)
			assert.Equal(t, took, time.Since(began))
		}
		want("10.1.1.1", 40*ms, 0, errReading, 40*ms)
		want("10.1.1.1", 40*ms, 0, errReading, 0) // it has hung for as long already
		want("127.0.0.1", 101*ms, 1, nil, 60*ms)
		want("10.1.1.1", 0, 1, nil, 0)
		assert.Equal(t, 1, p.asked)

		gen++
		want("127.0.0.1", 0, 1, nil, 0) // does not go away
		want("10.1.1.1", 40*ms, 0, errReading, 40*ms)
		want("10.1.1.1", time.Hour, 1, nil, changeShare*100*ms-40*ms) // paced, and then read
		assert.Equal(t, 2, p.asked)

		// A change while it is being read is not missed.
		gen++
		want("127.0.0.1", 0, 1, nil, 0)
		gen++
		want("10.1.1.1", time.Hour, 1, nil, 2*changeShare*100*ms)
		assert.Equal(t, 4, p.asked)

		// The end of a dial ends its wait.
		gen++
		ctx, cancel := context.WithTimeout(t.Context(), 10*ms)
		defer cancel()
		began := time.Now()
		_, err := tab.lookup(ctx, netip.MustParseAddr("10.1.1.1"), time.Hour)
		assert.Equal(t, errReading, err)
		assert.Equal(t, 10*ms, time.Since(began))
		time.Sleep(time.Second)
	})
}

func TestTableOfProviderThatCannotTell(t *testing.T) {
	broken := errors.New("broken")
	a, b := serving("a"), serving("b", "10.1.0.5/16")
	a.err = broken
	tab := newTable([]provider.Provider{a, b})
	ways, err := tab.askTo("10.1.1.1")
	assert.NoError(t, err, "another one serves it")
	assert.Equal(t, []string{"b"}, names(ways))
	ways, err = tab.askTo("10.2.1.1")
	assert.Equal(t, broken, err)
	assert.Empty(t, ways)
}
