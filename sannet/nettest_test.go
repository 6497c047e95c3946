package sannet_test

import (
	"fmt"
	"net"
	"testing"

	"golang.org/x/net/nettest"
)

// TestNettest runs the suite that every net.Conn has to pass.
func TestNettest(t *testing.T) {
	onPaths(t, func(t *testing.T, p path) { nettest.TestConn(t, maker(p, false)) })
}

// TestNettestAcross runs it with the ends in two processes: what it does with one of them is done over there.
func TestNettestAcross(t *testing.T) {
	p := acrossPath(t, startChild(t))
	for _, swap := range []bool{false, true} {
		t.Run(fmt.Sprint("swapped ", swap), func(t *testing.T) { nettest.TestConn(t, maker(p, swap)) })
	}
}

func maker(p path, swap bool) nettest.MakePipe {
	return func() (c1, c2 net.Conn, stop func(), err error) {
		c1, c2, err = p.connect("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, nil, nil, err
		}
		if swap {
			c1, c2 = c2, c1
		}
		return c1, c2, func() { c1.Close(); c2.Close() }, nil
	}
}
