package remote

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(serve) != "" {
		os.Exit(child())
	}
	goleak.VerifyTestMain(m)
}
