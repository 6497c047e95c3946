package providertest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"sansock/emu"
	"sansock/provider"
	"sansock/provider/providertest"
)

// emulator is a Config for the emulated SAN.
func emulator(c emu.Config) providertest.Config {
	return providertest.Config{Rounds: 60, Open: func() (provider.Provider, provider.Provider, error) {
		c := c
		c.Fabric = emu.NewFabric()
		p, err := emu.New(c)
		return p, p, err
	}}
}

// TestEmulator runs the suite against the emulator as it is.
func TestEmulator(t *testing.T) {
	providertest.Run(t, emulator(emu.Config{}))
}

// TestShapes runs the suite against the emulator in other shapes.
func TestShapes(t *testing.T) {
	for name, shape := range map[string]emu.Config{
		"no RDMA read":       {NoRDMARead: true},
		"local registration": {LocalRegistration: true},
		"small": {LocalRegistration: true, MaxMessage: 2000, MaxInline: 40, MaxRDMA: 8000, MaxRecvs: 24, MaxSends: 5,
			MaxRDMAs: 3},
		"smallest":  {MaxMessage: provider.MaxFirstMessage, MaxInline: -1, MaxRDMA: 4096, MaxRecvs: 4, MaxSends: 1, MaxRDMAs: 1},
		"no inline": {MaxInline: -1},
		"late":      {Completions: emu.Completions{Delay: 3 * time.Millisecond, Batch: 4}},
		"slow link": {Link: emu.Link{Latency: 2 * time.Millisecond, Bandwidth: 1 << 30}},
	} {
		t.Run(name, func(t *testing.T) {
			c := emulator(modest(shape))
			if shape.Link != (emu.Link{}) {
				c.Waive = map[string]string{"cost/allocations": "a link with a shape queues parcels"}
			}
			assert.Empty(t, check(t, c))
		})
	}
}

// TestMisuse shows that names which are not rules are found.
func TestMisuse(t *testing.T) {
	c := emulator(emu.Config{})
	c.Waive = map[string]string{"message/odrer": "a typo"}
	found := providertest.Check(c, "message/oder")
	require.Len(t, found, 2)
	assert.Equal(t, "message/odrer", found[0].Rule)
	assert.Equal(t, "message/oder", found[1].Rule)

	c = emulator(emu.Config{})
	c.Open = func() (provider.Provider, provider.Provider, error) { return nil, nil, provider.StatusUnsupported }
	found = providertest.Check(c, "message/order")
	require.Len(t, found, 1)
	assert.Contains(t, found[0].String(), "message/order: Open: unsupported")
}
