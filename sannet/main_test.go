package sannet_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// childMains are the programs that this one can be, by the value of childEnv. They return the exit code,
// or -1 to end by a return from main.
var childMains = map[string]func() int{"1": childMain}

func TestMain(m *testing.M) {
	if run := childMains[os.Getenv(childEnv)]; run != nil {
		if code := run(); code >= 0 {
			os.Exit(code)
		}
		return
	}
	goleak.VerifyTestMain(m)
}
