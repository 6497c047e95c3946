package providertest_test

import (
	"testing"
	"time"

	"sansock/emu"
	"sansock/provider"
	"sansock/provider/providertest"
)

// emulator is a Config for the emulated SAN.
func emulator(c emu.Config) providertest.Config {
	return providertest.Config{Open: func() (provider.Provider, provider.Provider, error) {
		c := c
		c.Fabric = emu.NewFabric()
		p, err := emu.New(c)
		return p, p, err
	}}
}

// TestEmulator runs the suite against the emulator in several shapes.
func TestEmulator(t *testing.T) {
	for name, c := range map[string]emu.Config{
		"default":            {},
		"no RDMA read":       {NoRDMARead: true},
		"local registration": {LocalRegistration: true},
		"small": {LocalRegistration: true, MaxMessage: 2000, MaxInline: 40, MaxRDMA: 8000, MaxRecvs: 24, MaxSends: 5,
			MaxRDMAs: 3},
		"no inline": {MaxInline: -1},
		"late":      {Completions: emu.Completions{Delay: 100 * time.Microsecond, Batch: 4}},
		"slow link": {Link: emu.Link{Latency: 200 * time.Microsecond}},
	} {
		t.Run(name, func(t *testing.T) {
			c := emulator(c)
			c.Rounds = 60
			if name == "slow link" {
				c.Waive = map[string]string{"cost/allocations": "a link with a shape queues parcels"}
			}
			providertest.Run(t, c)
		})
	}
}
