//go:build linux

package shm

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		os.Exit(play(role))
	}
	goleak.VerifyTestMain(m)
}

// roleVar makes the test binary the other process of a test.
const roleVar = "SANSOCK_SHM_ROLE"
