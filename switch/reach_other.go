//go:build !unix

package sanswitch

import "net"

// reachOf tells for whom the socket of ln is. Here that is not known, and sockets of others
// cannot be adopted.
func reachOf(net.Listener) (tcp string, device bool) { return "tcp", false }
