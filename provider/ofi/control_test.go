//go:build ofi && cgo && linux

package ofi

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sansock/provider/providertest"
)

// cached are the rules that libfabric's registration cache breaks over verbs: it registers everything for every access, and
// keeps it when it is deregistered.
var cached = []string{"protect/rights", "protect/two-registrations", "protect/deregistered"}

// TestNegativeControl runs the rules of protection with the cache on, where they must fail: a suite that passes there
// proves nothing without it either. The library reads its settings once, so that takes another process.
func TestNegativeControl(t *testing.T) {
	if testFabric == fabricTCP {
		t.Skip("the tcp fabric has no registration cache")
	}
	exe, err := os.Executable()
	require.NoError(t, err)
	c := exec.Command(exe, "-test.run=^TestRegistrationCache$", "-test.v")
	c.Env = append(os.Environ(), "OFI_TEST_REGISTRATION_CACHE=1024")
	out, err := c.CombinedOutput()
	t.Logf("%s", out)
	require.NoError(t, err)
	require.Contains(t, string(out), "--- PASS: TestRegistrationCache")
}

// TestRegistrationCache is the other process's part.
func TestRegistrationCache(t *testing.T) {
	if registrationCache == "0" {
		t.Skip("run by TestNegativeControl")
	}
	broken := make(map[string]int)
	for _, v := range providertest.Check(conformance(), cached...) {
		t.Log(v)
		if !strings.Contains(v.What, "did not") { // too slow is not broken
			broken[v.Rule]++
		}
	}
	for _, rule := range cached {
		require.NotZero(t, broken[rule], "%s has not noticed that memory is reachable", rule)
	}
}
