package sanswitch

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// dnsServer is a name server on this host that counts what it is asked.
type dnsServer struct {
	pc      net.PacketConn
	queries atomic.Int64
}

// newDNSServer returns a server for which name has these addresses, and no other name has any.
func newDNSServer(t testing.TB, name string, addrs ...string) *dnsServer {
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &dnsServer{pc: pc}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			s.queries.Add(1)
			pc.WriteTo(answerQuery(t, buf[:n], name, addrs), from)
		}
	}()
	t.Cleanup(func() {
		pc.Close()
		<-done
	})
	return s
}

// resolver returns a new Resolver that asks the server.
func (s *dnsServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", s.pc.LocalAddr().String())
	}}
}

// mute returns a Resolver whose server does not answer.
func mute() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
}

// dialer returns a Dialer that asks the server.
func (s *dnsServer) dialer() *net.Dialer {
	return &net.Dialer{Resolver: s.resolver(), Timeout: time.Minute}
}

// asked returns how many queries f has led to.
func (s *dnsServer) asked(f func()) int64 {
	before := s.queries.Load()
	f()
	return s.queries.Load() - before
}
