package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// program builds the program and returns a function that runs it with an environment variable more, and gives its
// output and exit code.
func program(t *testing.T) func(env string, args ...string) (stdout, stderr string, code int) {
	exe := filepath.Join(t.TempDir(), "quickstart.exe")
	out, err := exec.Command("go", "build", "-o", exe, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	return func(env string, args ...string) (string, string, int) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, exe, args...)
		cmd.Env = append(os.Environ(), env)
		stdout, err := cmd.Output()
		var stderr []byte
		if ee, ok := err.(*exec.ExitError); ok {
			stderr = ee.Stderr
		} else {
			require.NoError(t, err)
		}
		return string(stdout), string(stderr), cmd.ProcessState.ExitCode()
	}
}

func TestQuickstart(t *testing.T) {
	run := program(t)
	t.Run("san", func(t *testing.T) {
		stdout, stderr, code := run("SANNET_PROVIDERS=")
		assert.Zero(t, code, stderr)
		assert.Regexp(t, `^path:  san via emu
echo:  "hello, SAN", 10000 times, .* each
file:  16777216 bytes in .*, sha256 [0-9a-f]{16} verified
$`, stdout)
	})
	t.Run("san only", func(t *testing.T) {
		stdout, stderr, code := run("SANNET_PROVIDERS=emu", "-net", "san", "-size", "0")
		assert.Zero(t, code, stderr)
		assert.Contains(t, stdout, "san via emu")
		assert.Contains(t, stdout, "file:  0 bytes")
	})
	t.Run("tcp", func(t *testing.T) {
		stdout, stderr, code := run("SANNET_PROVIDERS=none")
		assert.Zero(t, code, stderr)
		assert.Regexp(t, `^path:  tcp: .+\n`, stdout)
		assert.Contains(t, stdout, "verified")
	})
	t.Run("provider missing", func(t *testing.T) {
		_, stderr, code := run("SANNET_PROVIDERS=nosuch", "-net", "san")
		assert.Equal(t, 1, code)
		assert.Contains(t, stderr, `no provider "nosuch" is built in`)
	})
	for name, args := range map[string][]string{
		"unknown flag": {"-nosuch"},
		"bad network":  {"-net", "udp"},
		"bad size":     {"-size", "-1"},
		"argument":     {"extra"},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, code := run("", args...)
			assert.Equal(t, 2, code)
			assert.Empty(t, stdout)
			assert.Contains(t, stderr, "-size")
		})
	}
}
