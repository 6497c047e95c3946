//go:build linux

package emu_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/provider"
	"sansock/provider/providertest"
)

// apart returns two providers that reach each other as if they were in two processes.
func apart(name string, c emu.Config) (a, b *emu.Provider, err error) {
	name = fmt.Sprint(os.Getpid(), name)
	c.Fabric = emu.SharedFabric(name)
	if a, err = emu.New(c); err != nil {
		return nil, nil, err
	}
	c.Fabric = emu.SharedFabric(name)
	b, err = emu.New(c)
	return a, b, err
}

func TestAcross(t *testing.T) {
	providertest.Run(t, providertest.Config{
		Rounds: 40,
		Open: func() (dialer, listener provider.Provider, err error) {
			a, b, err := apart("conformance", emu.Config{})
			return a, b, err
		},
	})
}

// TestAcrossPorts has two name spaces choose ports that do not collide.
func TestAcrossPorts(t *testing.T) {
	a, b, err := apart("ports", emu.Config{})
	require.NoError(t, err)
	defer a.Close()
	defer b.Close()
	l, err := a.Listen(netip.MustParseAddrPort("127.0.0.1:0"), 1)
	require.NoError(t, err)
	_, err = b.Listen(l.Addr(), 1)
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.NoError(t, l.Close())
	l, err = b.Listen(l.Addr(), 1)
	require.NoError(t, err)
	require.NoError(t, l.Close())
}

// TestSameProcess has providers that keep to themselves.
func TestSameProcess(t *testing.T) {
	for _, c := range []emu.Config{{SameProcess: true}, {NoRDMARead: true}, {MaxMessage: 4096}} {
		a, b, err := apart("apart", c)
		require.NoError(t, err)
		l, err := a.Listen(netip.MustParseAddrPort("127.0.0.1:0"), 1)
		require.NoError(t, err)
		_, err = b.Dial(context.Background(), netip.AddrPort{}, l.Addr())
		require.True(t, errors.Is(err, provider.StatusNoListener), "%v", err)
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
}
