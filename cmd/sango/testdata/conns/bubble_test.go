package conns

import (
	"net"
	"testing"
	"testing/synctest"
)

// What runs in a bubble of testing/synctest must not leave it, and so is over TCP.
func TestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := listen(t)
		c := must[net.Conn](t)(net.Dial("tcp", l.Addr().String()))
		defer c.Close()
		a := must[*net.TCPConn](t)(l.AcceptTCP())
		defer a.Close()
		send(t, c, "in a bubble")
		receive(t, a, "in a bubble")
	})
	a, b := pair(t) // which is over the SAN
	send(t, a, "outside")
	receive(t, b, "outside")
}
