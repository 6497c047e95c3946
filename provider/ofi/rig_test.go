//go:build ofi && cgo && linux

package ofi

import (
	"context"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sansock/provider"
)

// The tests run over the fabric in SANNET_OFI_FABRIC, by default tcp, at the address in OFI_TEST_ADDR, by default loopback.
var (
	testFabric = "tcp"
	testAddr   = netip.MustParseAddrPort("127.0.0.1:0")
)

func init() {
	if f := os.Getenv("SANNET_OFI_FABRIC"); f != "" {
		testFabric = f
	}
	if a := os.Getenv("OFI_TEST_ADDR"); a != "" {
		testAddr = netip.AddrPortFrom(netip.MustParseAddr(a), 0)
	}
	if n := os.Getenv("OFI_TEST_REGISTRATION_CACHE"); n != "" {
		registrationCache = n
	}
}

// opened returns a provider over the fabric under test.
func opened(t testing.TB) *Provider {
	t.Helper()
	p, err := Open(Config{Fabric: testFabric})
	require.NoError(t, err)
	t.Cleanup(func() { p.Close() })
	return p.(*Provider)
}

// connected returns both ends of a connection of p.
func connected(t testing.TB, p *Provider) (dialer, listener provider.Endpoint) {
	t.Helper()
	l, err := p.Listen(testAddr, 4)
	require.NoError(t, err)
	defer l.Close()
	got := make(chan provider.Endpoint, 1)
	go func() {
		defer close(got)
		if r, err := l.Accept(); err == nil {
			if ep, err := r.Accept(context.Background()); err == nil {
				got <- ep
			}
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	a, err := p.Dial(ctx, netip.AddrPort{}, l.Addr())
	require.NoError(t, err)
	b := <-got
	require.NotNil(t, b)
	t.Cleanup(func() {
		a.Close()
		b.Close()
	})
	return a, b
}
