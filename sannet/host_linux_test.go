package sannet_test

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"sansock/internal/hosttest"
	"sansock/sannet"
	sanswitch "sansock/switch"
)

// serveAll listens with sannet, and keeps what it accepts until the end of the test.
func serveAll(t *testing.T, address string) (port string) {
	l, err := sannet.Listen("tcp", address)
	require.NoError(t, err)
	hosttest.AcceptAll(t, l)
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port
}

// pathTo dials and tells which path that took.
func pathTo(t *testing.T, address string) string {
	t.Helper()
	c, err := (&sannet.Dialer{Timeout: stuck}).Dial("tcp", address)
	require.NoError(t, err)
	defer c.Close()
	info, _ := sannet.InfoOf(c)
	return info.String()
}

// Where a sandbox forbids to list the interfaces of the host, its addresses are on the SAN all
// the same.
func TestHostThatDoesNotTell(t *testing.T) {
	hosttest.Run(t, hosttest.Host{Addrs: []string{"10.7.0.1/24", "fd07::1/64"}}, func(t *testing.T) {
		hosttest.Forbid(t, hosttest.Rule{Call: unix.SYS_SOCKET, First: unix.AF_NETLINK, Errno: unix.EAFNOSUPPORT})
		_, err := net.InterfaceAddrs()
		require.Error(t, err)
		port := serveAll(t, ":0")
		for _, host := range []string{"127.0.0.1", "[::1]", "10.7.0.1", "[fd07::1]"} {
			assert.Equal(t, "san via emu", pathTo(t, host+":"+port), host)
		}
	})
}

// An address that comes is on the SAN at once, and one that has left the host is not: dialing it
// fails as with net.
func TestAddressComesAndGoes(t *testing.T) {
	hosttest.Run(t, hosttest.Host{}, func(t *testing.T) {
		port := serveAll(t, ":0")
		for _, a := range []string{"10.7.0.1/32", "fd07::1/128"} {
			p := netip.MustParsePrefix(a)
			address := net.JoinHostPort(p.Addr().String(), port)
			for range 3 {
				_, want := net.Dial("tcp", address)
				_, err := sannet.Dial("tcp", address)
				require.Error(t, err)
				assert.Equal(t, want.Error(), err.Error())
				require.NoError(t, hosttest.AddAddr("lo", p))
				require.Eventually(t, func() bool { // the kernel may take a moment
					c, err := net.Dial("tcp", address)
					if err == nil {
						c.Close()
					}
					return err == nil
				}, stuck, time.Millisecond)
				assert.Equal(t, "san via emu", pathTo(t, address))
				require.NoError(t, hosttest.DelAddr("lo", p))
			}
		}
	})
}

// A host may have very many addresses. No dial waits for them to be listed: not those that go
// nowhere, and none on the SAN.
func TestHostOfManyAddresses(t *testing.T) {
	hosttest.Run(t, hosttest.Host{Addrs: []string{"192.0.2.1/24"}}, func(t *testing.T) {
		many := make([]netip.Prefix, 2000) // more take the kernel long
		for i := range many {
			b := [16]byte{0: 0xfd, 1: 7}
			binary.BigEndian.PutUint32(b[12:], uint32(i+1))
			many[i] = netip.PrefixFrom(netip.AddrFrom16(b), 128)
		}
		require.NoError(t, hosttest.AddAddr("lo", many...))
		port := serveAll(t, ":0")

		// Some dials go to where nobody is.
		ctx, cancel := context.WithCancel(t.Context())
		lost := make(chan time.Duration)
		go func() {
			var longest time.Duration
			for ctx.Err() == nil {
				began := time.Now()
				if c, err := (&sannet.Dialer{Timeout: 50 * time.Millisecond}).DialContext(ctx, "tcp", "192.0.2.77:9"); err == nil {
					c.Close()
				}
				longest = max(longest, time.Since(began))
			}
			lost <- longest
		}()
		paths := make(map[string]int)
		began := time.Now()
		for i := range len(many) {
			c, err := (&sannet.Dialer{Timeout: time.Second}).Dial("tcp", "127.0.0.1:"+port)
			require.NoError(t, err)
			info, _ := sannet.InfoOf(c)
			paths[info.Path.String()]++
			c.Close()
			if i%500 == 0 {
				assert.Equal(t, "san via emu", pathTo(t, net.JoinHostPort(many[i].Addr().String(), port)))
			}
		}
		t.Logf("%d dials in %v", len(many), time.Since(began))
		cancel()
		t.Logf("the longest of 50 ms: %v", <-lost)
		assert.Equal(t, map[string]int{sanswitch.PathSAN.String(): len(many)}, paths)
	})
}
