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
	return providertest.Config{
		Open: func() (provider.Provider, provider.Provider, error) {
			p, err := Open(Config{Fabric: testFabric})
			return p, p, err
		},
		Addr:   testAddr,
		Wait:   20 * time.Second,
		Rounds: 60,
		Waive: map[string]string{
			"wake/unsolicited": "libfabric does not tell what the sender meant",
		},
	}
}

func TestConformance(t *testing.T) { providertest.Run(t, conformance()) }
