// Package hosttest runs tests on hosts of their own: in network and mount namespaces, with their
// own addresses and files.
package hosttest

import "testing"

// Host is what a host has beside a loopback interface.
type Host struct {
	Hosts  string   // the text of /etc/hosts
	Resolv string   // the text of /etc/resolv.conf
	Addrs  []string // addresses of the loopback interface, as prefixes

	// Setup does the rest.
	Setup func(t *testing.T)
}

// Run runs f on the host, in a process of its own, which is this test once more. It skips the
// test, loudly, where namespaces cannot be made: elsewhere than on Linux, and without the rights
// of root.
func Run(t *testing.T, h Host, f func(t *testing.T)) {
	t.Helper()
	run(t, h, f)
}
