//go:build !linux

package hosttest

import "testing"

func run(t *testing.T, _ Host, _ func(*testing.T)) {
	t.Skip("*** NOT RUN: a host of its own needs the namespaces of Linux ***")
}
