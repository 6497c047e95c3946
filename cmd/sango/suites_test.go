//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// suites are those of the toolchain that are about TCP.
var suites = []string{
	"net", "net/http", "net/http/httptest", "net/http/httputil", "net/rpc", "net/smtp", "net/textproto",
	"log/syslog", "crypto/tls",
}

const (
	calls  = "wants the kernel's call that copies, or gathers, to be made, by a hook inside of net"
	socket = "sets options of the socket by its number, by a hook inside of net"
)

// expected are the tests that fail, and why. What crosses is right in all of them.
var expected = map[string]string{
	"net.TestSendfile":                        calls,
	"net.TestSendfileWithExactLimit":          calls,
	"net.TestSendfileWithLimitLargerThanFile": calls,
	"net.TestSendfileParts":                   calls,
	"net.TestSendfileSeeked":                  calls,
	"net.TestSplice":                          calls,
	"net.TestBuffers_WriteTo":                 calls,
	"net.TestTCPConnKeepAliveConfigDialer":    socket,
	"net.TestTCPConnKeepAliveConfigListener":  socket,
	"net.TestDialContextCancelRace":           "has a hook in getsockopt, which a SAN does not call",
	"net.TestFileConn":                        "a copy of a socket shows the addresses of a pair on this host",
}

// TestSuites runs the toolchain's own tests, in short, with everything over the SAN. It takes
// minutes: SANGO_SUITES is to be set.
func TestSuites(t *testing.T) {
	if os.Getenv("SANGO_SUITES") == "" {
		t.Skip("SANGO_SUITES is not set")
	}
	trace := filepath.Join(t.TempDir(), "trace")
	r := in(t, t.TempDir(), "SANGO_TRACE="+trace)
	args := append([]string{"test", "-short", "-vet=off", "-count=1", "-json"}, suites...)
	out, _ := r.sango(args...)

	failed := make(map[string]string)
	results := make(map[string]string)
	lines := bufio.NewScanner(strings.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct{ Action, Package, Test, Output string }
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			t.Log(lines.Text())
			continue
		}
		name := e.Package + "." + e.Test
		switch {
		case e.Action == "output" && e.Test != "":
			test, _, _ := strings.Cut(e.Test, "/")
			failed[e.Package+"."+test] += e.Output
		case e.Action == "pass" || e.Action == "fail" || e.Action == "skip":
			results[name] = e.Action
		}
	}
	require.NoError(t, lines.Err())
	for _, s := range suites {
		assert.Contains(t, results, s+".", "it has not run")
	}
	for name, result := range results {
		pkg, test, _ := strings.Cut(name, ".Test")
		why := expected[name]
		switch {
		case test == "" || strings.Contains(test, "/"):
		case result == "fail" && why == "":
			t.Errorf("%s.Test%s failed:\n%s", pkg, test, failed[name])
		case result == "pass" && why != "":
			t.Errorf("%s passed: it is to be taken off the list", name)
		}
	}
	count(t, trace)
}

// count tells how many connections were dialed over which path, and why.
func count(t *testing.T, trace string) {
	text, err := os.ReadFile(trace)
	require.NoError(t, err)
	paths := make(map[string]int)
	for line := range strings.Lines(string(text)) {
		if f := strings.SplitN(strings.TrimSpace(line), " ", 6); len(f) == 6 && f[2] == "dial" {
			paths[f[5]]++
		}
	}
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		t.Logf("%5d dials: %s", paths[path], path)
	}
	assert.Greater(t, paths["san via emu"], 1000)
}
