package hosttest

import (
	"net"
	"testing"
)

// AcceptAll accepts whatever comes to l, and keeps it open until the test ends, when it closes l and all of that.
func AcceptAll(t testing.TB, l net.Listener) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
}
