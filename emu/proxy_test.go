package emu

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"sansock/provider"
)

func TestRegistrationLimits(t *testing.T) {
	p := open(t, Config{Memory: Memory{MaxRegistrations: 3, MaxRegisteredBytes: 100}})
	x, y := connected(t, p, p)
	a, err := x.Allocate(50)
	require.NoError(t, err)
	_, err = y.Register(make([]byte, 51)) // one budget for all endpoints
	require.Equal(t, provider.StatusLimit, err)
	b, err := y.Register(make([]byte, 50))
	require.NoError(t, err)
	_, err = y.Expose(nil, provider.RightRead)
	require.NoError(t, err)
	_, err = x.Allocate(0)
	require.Equal(t, provider.StatusLimit, err)
	require.NoError(t, y.Deregister(b.Handle))
	require.NoError(t, x.Deregister(a.Handle))
	a, err = x.Allocate(100)
	require.NoError(t, err)
	require.Equal(t, make([]byte, 100), a.Bytes)
}

func TestLowMemory(t *testing.T) {
	p := open(t, Config{Memory: Memory{LowMemory: 4*pageSize + 100}})
	x, _ := connected(t, p, p)
	var r [4]provider.Region
	var err error
	for i := range r {
		r[i], err = x.Allocate(1 + i*1000)
		require.NoError(t, err)
	}
	_, err = x.Allocate(1)
	require.Equal(t, provider.StatusNoMemory, err)

	// Two free pages apart from each other are not two pages.
	require.NoError(t, x.Deregister(r[0].Handle))
	require.NoError(t, x.Deregister(r[2].Handle))
	_, err = x.Allocate(2 * pageSize)
	require.Equal(t, provider.StatusNoMemory, err)
	require.NoError(t, x.Deregister(r[1].Handle))
	big, err := x.Allocate(3 * pageSize)
	require.NoError(t, err)
	require.Len(t, p.proxy.free, 0)
	require.NoError(t, x.Deregister(big.Handle))
	require.NoError(t, x.Deregister(r[3].Handle))
	require.Equal(t, []extent{{0, 4 * pageSize}}, p.proxy.free)

	// Application memory does not come from there.
	_, err = x.Register(make([]byte, 100*pageSize))
	require.NoError(t, err)
	// What a closed endpoint had is back when it is deregistered, as it can be read until then.
	big, err = x.Allocate(4 * pageSize)
	require.NoError(t, err)
	x.Close()
	require.Len(t, p.proxy.free, 0)
	require.NoError(t, x.Deregister(big.Handle))
	require.Equal(t, []extent{{0, 4 * pageSize}}, p.proxy.free)
	require.Empty(t, p.proxy.used)
}

func TestNarrowDevice(t *testing.T) {
	x, y := pair(t, Config{Memory: Memory{AddressBits: 16}})
	require.True(t, x.Attributes().LocalRegistration, "it reaches nothing else")
	_, err := x.Register(make([]byte, 1))
	require.Equal(t, provider.StatusNoMemory, err)
	_, err = x.Expose(make([]byte, 1), provider.RightRead)
	require.Equal(t, provider.StatusNoMemory, err)
	_, err = x.Allocate(1<<16 + 1)
	require.Equal(t, provider.StatusNoMemory, err)
	r := y.receives(1, 8)
	x.say("through")
	require.Len(t, y.all(), 1)
	require.Equal(t, "through", string(r.Bytes[:7]))

	x, _ = pair(t, Config{Memory: Memory{AddressBits: HostAddressBits}})
	_, err = x.Register(make([]byte, 1))
	require.NoError(t, err)
	require.False(t, x.Attributes().LocalRegistration)
}

func TestAbsurdSizes(t *testing.T) {
	for _, m := range []Memory{{}, {LowMemory: 1 << 20}, {MaxRegistrations: 1}} {
		x, _ := pair(t, Config{Memory: m})
		for _, n := range []int{-1, maxCommon + 1, math.MaxInt} {
			_, err := x.Allocate(n)
			require.Equal(t, provider.StatusNoMemory, err)
		}
		r, err := x.Allocate(0)
		require.NoError(t, err)
		require.Empty(t, r.Bytes)
		require.NoError(t, x.Deregister(r.Handle))
	}
}
