package sannet_test

import (
	"net"
	"testing"

	"golang.org/x/net/nettest"
)

// TestNettest runs the suite that every net.Conn has to pass.
func TestNettest(t *testing.T) {
	onPaths(t, func(t *testing.T, p path) {
		nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
			c1, c2, err = p.connect("tcp", "127.0.0.1:0")
			if err != nil {
				return nil, nil, nil, err
			}
			return c1, c2, func() { c1.Close(); c2.Close() }, nil
		})
	})
}
