//go:build ofi

package sannet_test

import (
	"os"

	"sansock/provider"
	"sansock/provider/ofi"
)

// With SANNET_TEST_OFI set to a fabric, such as tcp, tests that run over the emulated SAN run over that one instead.
func init() {
	if fabric := os.Getenv("SANNET_TEST_OFI"); fabric != "" {
		openSAN = func() (provider.Provider, error) { return ofi.Open(ofi.Config{Fabric: fabric}) }
	}
}
