package hostaddr

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"sansock/internal/hosttest"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// changed waits until the generation is another one. The kernel takes a moment to make an IPv6
// address usable.
func changed(t *testing.T, gen uint64) uint64 {
	t.Helper()
	now := gen
	require.Eventually(t, func() bool {
		now, _ = Generation()
		return now != gen
	}, time.Minute, time.Millisecond)
	return now
}

// Addresses that come and go are seen at once.
func TestChanges(t *testing.T) {
	hosttest.Run(t, hosttest.Host{Addrs: []string{"10.7.0.1/24"}}, func(t *testing.T) {
		want := append(loopback[:2:2], prefix("10.7.0.1/32"))
		ps, err := Prefixes()
		require.NoError(t, err)
		assert.ElementsMatch(t, want, ps)
		gen, ok := Generation()
		require.True(t, ok)
		again, ok := Generation()
		require.True(t, ok)
		assert.Equal(t, gen, again, "nothing has changed")

		for _, a := range []string{"10.7.0.2/32", "fd07::2/128"} {
			require.NoError(t, hosttest.AddAddr("lo", prefix(a)))
			gen = changed(t, gen)
			ps, _ = Prefixes()
			assert.ElementsMatch(t, append(want, prefix(a)), ps)

			require.NoError(t, hosttest.DelAddr("lo", prefix(a)))
			now, _ := Generation()
			assert.NotEqual(t, gen, now)
			ps, _ = Prefixes()
			assert.ElementsMatch(t, want, ps)
			gen = now
		}

		// More changes than anybody has looked at.
		for range 500 {
			require.NoError(t, hosttest.AddAddr("lo", prefix("10.7.0.3/32")))
			require.NoError(t, hosttest.DelAddr("lo", prefix("10.7.0.3/32")))
		}
		require.NoError(t, hosttest.AddAddr("lo", prefix("10.7.0.4/32")))
		changed(t, gen)
		ps, _ = Prefixes()
		assert.ElementsMatch(t, append(want, prefix("10.7.0.4/32")), ps)
	})
}

// Where a sandbox forbids to ask, files tell.
func TestRefused(t *testing.T) {
	hosttest.Run(t, hosttest.Host{Addrs: []string{"10.7.0.1/24", "fd07::1/64"}}, func(t *testing.T) {
		hosttest.Forbid(t, hosttest.Rule{Call: unix.SYS_SOCKET, First: unix.AF_NETLINK, Errno: unix.EAFNOSUPPORT})
		ps, err := Prefixes()
		require.NoError(t, err)
		assert.ElementsMatch(t, append(loopback[:2:2], prefix("10.7.0.1/32"), prefix("fd07::1/128")), ps)
		_, ok := Generation()
		assert.False(t, ok)
	})
}

// Where nothing tells, loopback is still there.
func TestRefusedAltogether(t *testing.T) {
	hosttest.Run(t, hosttest.Host{Addrs: []string{"10.7.0.1/24"}}, func(t *testing.T) {
		require.NoError(t, unix.Mount("tmpfs", "/proc", "tmpfs", 0, ""))
		defer unix.Unmount("/proc", unix.MNT_DETACH)
		hosttest.Forbid(t, hosttest.Rule{Call: unix.SYS_SOCKET, First: unix.AF_NETLINK, Errno: unix.EPERM})
		ps, err := Prefixes()
		require.NoError(t, err)
		assert.Equal(t, loopback, ps)
	})
}

func TestParse(t *testing.T) {
	assert.Equal(t, []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.2")},
		parseTrie(strings.NewReader(`Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
           |-- 127.0.0.0
              /8 host LOCAL
           |-- 127.0.0.1
              /32 host LOCAL
     |-- nonsense
        /32 host LOCAL
           |-- 192.0.2.0
              /24 link UNICAST
           |-- 192.0.2.2
              /32 host LOCAL
        |-- 192.0.2.255
           /32 link BROADCAST
`)))
	assert.Equal(t, []netip.Addr{netip.MustParseAddr("fd00::2"), netip.MustParseAddr("fe80::fc:ff:fe00:1")},
		parseInet6(strings.NewReader(`fd000000000000000000000000000002 04 40 00 82     eth0
fe8000000000000000fc00fffe000001 04 40 20 80     eth0
nonsense

`)))
}

// A lack of descriptors keeps nobody from being told of changes for ever.
func TestWatchAfterALack(t *testing.T) {
	hosttest.Run(t, hosttest.Host{}, func(t *testing.T) {
		var limit unix.Rlimit
		require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: limit.Max}))
		_, ok := Generation()
		assert.False(t, ok)
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
		gen, ok := Generation()
		assert.True(t, ok)
		assert.NotZero(t, gen, "what was read meanwhile counts as changed")
	})
}
