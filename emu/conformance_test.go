package emu_test

import (
	"testing"
	"time"

	"sansock/emu"
	"sansock/provider"
	"sansock/provider/providertest"
)

// TestConformance runs the suite over what the knobs can make of the emulator. Where two
// configurations are given, the ends of a connection are made differently.
func TestConformance(t *testing.T) {
	shaped := emu.Config{Link: emu.Link{Latency: 5 * time.Microsecond, Bandwidth: 1 << 33}}
	// That rule reads and writes the same bytes at the same time, which hardware allows and the
	// race detector does not.
	overlap := map[string]string{"queue/rdmas": "overlapping transfers race where they do not take effect at once"}
	for _, c := range []struct {
		name             string
		dialer, listener emu.Config
		waive            map[string]string
	}{
		{name: "default"},
		{name: "no RDMA read", dialer: emu.Config{NoRDMARead: true}, listener: emu.Config{NoRDMARead: true}},
		{name: "RDMA read at one end", dialer: emu.Config{NoRDMARead: true}},
		{
			name:     "small limits",
			dialer:   emu.Config{MaxMessage: 5000, MaxInline: 64, MaxRDMA: 10000, MaxRecvs: 8, MaxSends: 4, MaxRDMAs: 1},
			listener: emu.Config{MaxMessage: 4096, MaxInline: -1, MaxRDMA: 4096, MaxRecvs: 4, MaxSends: 5, MaxRDMAs: 2},
		},
		{name: "local registration", dialer: emu.Config{LocalRegistration: true}, listener: emu.Config{LocalRegistration: true}},
		{
			name:   "limited memory",
			dialer: emu.Config{Memory: emu.Memory{MaxRegistrations: 1 << 16, MaxRegisteredBytes: 1 << 34, LowMemory: 1 << 30}},
		},
		{name: "latency", dialer: shaped, listener: shaped, waive: overlap},
		{name: "latency one way", dialer: shaped, waive: overlap},
		{
			name:   "late completions",
			dialer: emu.Config{Completions: emu.Completions{Delay: 10 * time.Microsecond, Batch: 4}},
		},
		{name: "asked at every step", dialer: emu.Config{Faults: emu.Faults{Hook: func(emu.Step) error { return nil }}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() && c.name != "default" {
				t.Skip("short")
			}
			// Once with long messages and transfers, and many rounds, is enough.
			rounds, message, rdma := 10, 64<<10, 32<<10
			if c.name == "default" {
				rounds, message, rdma = 40, 0, 32<<20
			}
			providertest.Run(t, providertest.Config{
				Rounds: rounds,
				Waive:  c.waive,
				Quiet:  2 * time.Millisecond,
				Open: func() (dialer, listener provider.Provider, err error) {
					fabric := emu.NewFabric()
					for _, c := range []*emu.Config{&c.dialer, &c.listener} {
						if c.MaxRDMA == 0 {
							c.MaxRDMA, c.MaxMessage = rdma, message
						}
					}
					c.dialer.Fabric, c.listener.Fabric = fabric, fabric
					d, err := emu.New(c.dialer)
					if err != nil {
						return nil, nil, err
					}
					l, err := emu.New(c.listener)
					if err != nil {
						return nil, nil, err
					}
					return d, l, nil
				},
			})
		})
	}
}
