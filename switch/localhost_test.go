package sanswitch

import (
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/internal/hosttest"
)

// The commonest of all dials goes over the SAN, whatever /etc/hosts says of localhost.
func TestLocalhost(t *testing.T) {
	for i, hosts := range []string{
		"::1 localhost\n127.0.0.1 localhost\n",
		"127.0.0.1 localhost\n::1 localhost\n",
		"127.0.0.1 localhost\n",
		"127.0.0.1 localhost\n::1 localhost ip6-localhost\n127.0.1.1 localhost\n",
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			hosttest.Run(t, hosttest.Host{Hosts: hosts}, func(t *testing.T) {
				p, err := emu.New(emu.Config{})
				require.NoError(t, err)
				s := newSwitch(t, Config{HeadStart: patient}, p)
				for _, at := range []string{"127.0.0.1:0", "[::1]:0", ":0", "localhost:0"} {
					l := listen(t, s, "tcp", at)
					want, err := net.Dial("tcp", "localhost:"+portOf(l.Addr()))
					if err != nil {
						continue // not an address of localhost here
					}
					accept(t, l)
					r := dial(t, s, "tcp", "localhost:"+portOf(l.Addr()))
					assertSAN(t, r)
					assert.Equal(t, want.RemoteAddr().String(), r.Session.RemoteAddr().String(), at)
					want.Close()
					accept(t, l)
				}
			})
		})
	}
}

// A name's address may have a zone, which is kept on every network.
func TestZoneOfName(t *testing.T) {
	hosttest.Run(t, hosttest.Host{Hosts: "fe80::1%lo zoned\n"}, func(t *testing.T) {
		for _, network := range []string{"tcp", "tcp6"} {
			_, want := net.Dial(network, "zoned:9")
			got, err := resolve(t.Context(), new(net.Dialer), network, "zoned:9")
			require.NoError(t, err)
			require.Len(t, got, 1)
			assert.Equal(t, opErrorOf(t, want).Addr.String(), got[0].shown.String())
			assert.Equal(t, "[fe80::1%lo]:9", got[0].addr.String())
		}
		for _, network := range []string{"tcp4"} {
			_, want := net.Dial(network, "zoned:9")
			_, err := resolve(t.Context(), new(net.Dialer), network, "zoned:9")
			assert.Equal(t, opErrorOf(t, want).Err, err)
		}
	})
}
