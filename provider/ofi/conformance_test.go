//go:build ofi && cgo && linux

package ofi

import (
	"testing"
	"time"

	"sansock/provider"
	"sansock/provider/providertest"
)

// conformance is the configuration of the suite for the fabric under test.
func conformance() providertest.Config {
	c := providertest.Config{
		Open: func() (provider.Provider, provider.Provider, error) {
			p, err := Open(Config{Fabric: testFabric})
			return p, p, err
		},
		Addr:   testAddr,
		Wait:   20 * time.Second,
		Rounds: 60,
		Waive: map[string]string{
			"wake/unsolicited": "libfabric does not say what the sender meant",
		},
	}
	if testFabric != fabricTCP {
		c.Quiet = 200 * time.Millisecond // the device is emulated in an emulated machine
		c.Rounds = 20
		if testing.Short() {
			c.Rounds, c.Quiet = 4, 100*time.Millisecond
		}
	}
	return c
}

func TestConformance(t *testing.T) { providertest.Run(t, conformance()) }
