package sannet_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"sansock/sannet"
)

// listener listens until the end of the test, and calls the address LISTENER in the notes.
func (s *script) listener(network, address string) net.Listener {
	s.Helper()
	l, err := s.listen(network, address)
	require.NoError(s, err)
	s.name(l.Addr(), "LISTENER")
	s.tidy(l)
	return l
}

// dialed dials, and writes down how that went.
func (s *script) dialed(ctx context.Context, d sannet.Dialer, network, address string) net.Conn {
	c, err := s.dialWith(ctx, d, network, address)
	if err != nil {
		s.note("nil: %t", c == nil)
		s.failed("dial "+network, err)
		return nil
	}
	s.tidy(c)
	s.note("dial %s: connected", network)
	return c
}

// refuse closes a listener, so that nothing listens at the address returned.
func (s *script) refuse() string {
	l := s.listener("tcp", "127.0.0.1:0")
	l.Close()
	return l.Addr().String()
}

func port(a net.Addr) string { return strconv.Itoa(a.(*net.TCPAddr).Port) }

// dialCases are about dialing.
var dialCases = []likeCase{
	{"dial a closed port", func(s *script) {
		s.dialed(context.Background(), sannet.Dialer{}, "tcp", s.refuse())
		s.dialed(context.Background(), sannet.Dialer{Timeout: stuck}, "tcp4", s.refuse())
	}},
	{"dial with a context that has ended", func(s *script) {
		l := s.listener("tcp", "127.0.0.1:0")
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.dialed(ctx, sannet.Dialer{}, "tcp", l.Addr().String())
		ctx, cancel = context.WithTimeout(context.Background(), -time.Second)
		defer cancel()
		s.dialed(ctx, sannet.Dialer{}, "tcp", l.Addr().String())
		s.dialed(context.Background(), sannet.Dialer{Timeout: -time.Second}, "tcp", l.Addr().String())
		s.dialed(context.Background(), sannet.Dialer{Deadline: past}, "tcp", l.Addr().String())
	}},
	{"a dial's time limits do not bound the connection", func(s *script) {
		l := s.listener("tcp", "127.0.0.1:0")
		ctx, cancel := context.WithTimeout(context.Background(), stuck)
		c := s.dialed(ctx, sannet.Dialer{Timeout: stuck}, "tcp", l.Addr().String())
		cancel()
		sv, err := l.Accept()
		s.failed("accept", err)
		s.tidy(sv)
		sv.Write([]byte("alive"))
		b := make([]byte, 5)
		n, err := io.ReadFull(c, b)
		s.result("read", n, err)
	}},
	{"dial bad networks and addresses", func(s *script) {
		l := s.listener("tcp", "127.0.0.1:0")
		bg := context.Background()
		for _, network := range []string{"", "bogus", "TCP", "tcp5", "tcp6"} {
			s.dialed(bg, sannet.Dialer{}, network, l.Addr().String())
		}
		for _, address := range []string{"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:discard", "127.0.0.1:DISCARD",
			"[::1]:discard", "127.0.0.1:09", "127.0.0.1:+9", ":nosuchservice", "127.0.0.1:99999",
			"127.0.0.1:-1", "[127.0.0.1:1", "::1:1", "[::1]", "1.2.3.4:5:6", "127.0.0.1:1:2"} {
			s.note("address %q", address)
			s.dialed(bg, sannet.Dialer{}, "tcp", address)
		}
	}},
	{"dial address forms", func(s *script) {
		for _, to := range [][4]string{
			{"tcp", "127.0.0.1:0", "127.0.0.1:", "tcp4"},
			{"tcp4", "127.0.0.1:0", "127.0.0.1:", "tcp"},
			{"tcp", "127.0.0.1:0", "[::ffff:127.0.0.1]:", "tcp"},
			{"tcp", "127.0.0.1:0", ":", "tcp4"},
			{"tcp", "127.0.0.1:0", "0.0.0.0:", "tcp"},
			{"tcp", "127.0.0.1:0", "localhost:", "tcp4"},
			{"tcp", "[::1]:0", "[::1]:", "tcp"},
			{"tcp6", "[::1]:0", "[::1]:", "tcp6"},
			{"tcp", "[::1]:0", ":", "tcp6"},
			{"tcp", ":0", "127.0.0.1:", "tcp"},
			{"tcp", ":0", "[::1]:", "tcp"},
			{"tcp", "0.0.0.0:0", "127.0.0.1:", "tcp"},
			{"tcp4", ":0", "127.0.0.1:", "tcp"},
			{"tcp6", ":0", "[::1]:", "tcp"},
			{"tcp", "localhost:0", "localhost:", "tcp"},
			{"tcp", "[::1%lo]:0", "[::1]:", "tcp"},
			{"tcp", "[::1]:0", "[::1%lo]:", "tcp"},
			{"tcp6", "[::1%lo]:0", "[::1%lo]:", "tcp6"},
			{"tcp", "[::1%nosuch]:0", "[::1]:", "tcp"},
			{"tcp", "[::]:0", "[::1%nosuch]:", "tcp"},
			{"tcp", "[fe80::1%lo]:0", "[fe80::1%lo]:", "tcp"},
			{"tcp", "[::]:0", "[fe80::1%lo]:", "tcp"},
			{"tcp6", "[::]:0", "[::ffff:127.0.0.1]:", "tcp"},
			{"tcp", "", "127.0.0.1:", "tcp"},
			{"tcp6", "", "[::]:", "tcp"},
			{"tcp4", "0.0.0.0:0", "127.0.0.2:", "tcp"},
			{"tcp", "127.0.0.3:0", "127.0.0.3:", "tcp"},
		} {
			s.note("%v", to)
			l, err := s.listen(to[0], to[1])
			if err != nil {
				s.failed("listen", err)
				continue
			}
			s.tidy(l)
			s.note("listening on %v", l.Addr().(*net.TCPAddr).IP)
			s.rename(":"+port(l.Addr()), ":PORT")
			c := s.dialed(context.Background(), sannet.Dialer{}, to[3], to[2]+port(l.Addr()))
			if c == nil {
				continue
			}
			sv, err := l.Accept()
			s.failed("accept", err)
			s.tidy(sv)
			for _, a := range []net.Addr{c.LocalAddr(), c.RemoteAddr(), sv.LocalAddr(), sv.RemoteAddr()} {
				s.note("%v %q", a.(*net.TCPAddr).IP, a.(*net.TCPAddr).Zone)
			}
			// Errors name the network as it was given.
			c.SetReadDeadline(past)
			sv.SetReadDeadline(past)
			s.name(c.LocalAddr(), "CLIENT")
			s.name(c.RemoteAddr(), "SERVER")
			_, err = c.Read(make([]byte, 1))
			s.failed("read", err)
			_, err = sv.Read(make([]byte, 1))
			s.failed("read", err)
		}
	}},
	{"dial that is cut short", func(s *script) {
		address := s.blackHole()
		if address == "" {
			return
		}
		ctx, cancel := context.WithCancel(context.Background())
		wait := s.park(func(s *script) { s.dialed(ctx, sannet.Dialer{}, "tcp", address) })
		cancel()
		wait()
		// Which of net's two errors for that one gets is a matter of chance.
		timeout := func(ctx context.Context, d sannet.Dialer) {
			_, err := s.dialWith(ctx, d, "tcp", address)
			ne, ok := err.(*net.OpError)
			s.note("%t %t %v", ok, ok && ne.Timeout(), err != nil && strings.HasSuffix(err.Error(), ": i/o timeout"))
		}
		ctx, cancel = context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		timeout(ctx, sannet.Dialer{})
		timeout(context.Background(), sannet.Dialer{Timeout: 10 * time.Millisecond})
		timeout(context.Background(), sannet.Dialer{Deadline: time.Now().Add(10 * time.Millisecond)})
		cause, cancelCause := context.WithCancelCause(context.Background())
		wait = s.park(func(s *script) { s.dialed(cause, sannet.Dialer{}, "tcp", address) })
		cancelCause(io.ErrUnexpectedEOF)
		wait()
	}},
	{"dial from a local address", func(s *script) {
		l := s.listener("tcp", "127.0.0.1:0")
		bg := context.Background()
		c := s.dialed(bg, sannet.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}, "tcp", l.Addr().String())
		s.note("port chosen: %t", c.LocalAddr().(*net.TCPAddr).Port != 0)
		free := s.refuse()
		la, err := net.ResolveTCPAddr("tcp", free)
		require.NoError(s, err)
		s.name(la, "LOCAL")
		c = s.dialed(bg, sannet.Dialer{LocalAddr: la}, "tcp", l.Addr().String())
		s.note("local address used: %t", c.LocalAddr().String() == free)
		s.dialed(bg, sannet.Dialer{LocalAddr: &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}}, "tcp", l.Addr().String())
		s.dialed(bg, sannet.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv6loopback}}, "tcp", l.Addr().String())
		s.dialed(bg, sannet.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}}, "tcp", l.Addr().String())
	}},
	{"dial other networks", func(s *script) {
		// These go to net.
		l, err := s.listen("unix", s.TempDir()+"/socket")
		require.NoError(s, err)
		s.tidy(l)
		c := s.dialed(context.Background(), sannet.Dialer{}, "unix", l.Addr().String())
		sv, err := l.Accept()
		require.NoError(s, err)
		s.tidy(sv)
		s.note("%T %T %T", l, c, sv)
		u := s.dialed(context.Background(), sannet.Dialer{}, "udp", "127.0.0.1:9")
		s.note("%T", u)
		_, err = s.listen("udp", "127.0.0.1:0")
		s.failed("listen udp", err)
	}},
}

// listenCases are about listening and accepting.
var listenCases = []likeCase{
	{"listen on bad networks and addresses", func(s *script) {
		for _, network := range []string{"", "bogus", "tcp5", "udp", "ip"} {
			l, err := s.listen(network, "127.0.0.1:0")
			s.result("listen "+network, l == nil, err)
		}
		for _, address := range []string{"127.0.0.1", "127.0.0.1:nosuchservice", "127.0.0.1:99999", "192.0.2.1:0"} {
			l, err := s.listen("tcp", address)
			s.result("listen "+address, l == nil, err)
		}
		l, err := s.listen("tcp6", "127.0.0.1:0")
		s.result("listen", l == nil, err)
	}},
	{"listen on an address in use", func(s *script) {
		l := s.listener("tcp", "127.0.0.1:0")
		_, err := s.listen("tcp", l.Addr().String())
		s.failed("listen", err)
		s.failed("close", l.Close())
		l2, err := s.listen("tcp", l.Addr().String())
		s.failed("listen again", err)
		s.tidy(l2)
	}},
	{"listener", func(s *script) {
		l := s.listener("tcp", "127.0.0.1:0")
		a, ok := l.Addr().(*net.TCPAddr)
		s.note("%t %t %v %s", ok, l.Addr() == l.Addr(), a.IP, a.Network())
		deadline := l.(interface{ SetDeadline(time.Time) error }).SetDeadline
		s.failed("set deadline", deadline(past))
		c, err := l.Accept()
		s.result("accept past", c == nil, err)
		s.failed("set deadline", deadline(time.Now().Add(time.Millisecond)))
		_, err = l.Accept()
		s.failed("accept", err)
		s.failed("clear deadline", deadline(time.Time{}))
		wait := s.park(func(s *script) {
			_, err := l.Accept()
			s.failed("accept", err)
		})
		s.failed("set deadline", deadline(past))
		wait()
		s.failed("clear deadline", deadline(time.Time{}))
		wait = s.park(func(s *script) {
			_, err := l.Accept()
			s.failed("accept", err)
		})
		s.failed("close", l.Close())
		wait()
		_, err = l.Accept()
		s.failed("accept", err)
		s.failed("close", l.Close())
		s.failed("set deadline", deadline(past))
		s.note("address after close: %t", l.Addr() != nil)
	}},
	{"listen, dial, accept in one goroutine", func(s *script) {
		l := s.listener("tcp", "127.0.0.1:0")
		for range 10 {
			c := s.dialed(context.Background(), sannet.Dialer{}, "tcp", l.Addr().String())
			n, err := c.Write([]byte("early"))
			s.result("write", n, err)
			sv, err := l.Accept()
			s.failed("accept", err)
			s.tidy(sv)
			b := make([]byte, 5)
			n, err = io.ReadFull(sv, b)
			s.result("read "+string(b), n, err)
			s.note("same peer: %t", c.LocalAddr().String() == sv.RemoteAddr().String())
		}
	}},
	{"dial several, then accept", func(s *script) {
		l := s.listener("tcp", "127.0.0.1:0")
		peers := make(map[string]bool)
		for range 20 {
			c := s.dialed(context.Background(), sannet.Dialer{}, "tcp", l.Addr().String())
			peers[c.LocalAddr().String()] = true
		}
		for range 20 {
			sv, err := l.Accept()
			require.NoError(s, err)
			s.tidy(sv)
			s.note("known: %t", peers[sv.RemoteAddr().String()])
			delete(peers, sv.RemoteAddr().String())
		}
	}},
	{"close the listener with connections not accepted", func(s *script) {
		l := s.listener("tcp", "127.0.0.1:0")
		c := s.dialed(context.Background(), sannet.Dialer{}, "tcp", l.Addr().String())
		s.name(c.LocalAddr(), "CLIENT")
		wait := s.park(func(s *script) {
			n, err := c.Read(make([]byte, 1))
			s.result("read", n, err)
		})
		s.failed("close", l.Close())
		wait()
		_, err := l.Accept()
		s.failed("accept", err)
	}},
	{"close the listener with connections accepted", func(s *script) {
		l := s.listener("tcp", "127.0.0.1:0")
		c := s.dialed(context.Background(), sannet.Dialer{}, "tcp", l.Addr().String())
		sv, err := l.Accept()
		require.NoError(s, err)
		s.tidy(sv)
		s.failed("close", l.Close())
		n, err := c.Write([]byte("still"))
		s.result("write", n, err)
		b := make([]byte, 5)
		n, err = io.ReadFull(sv, b)
		s.result("read "+string(b), n, err)
	}},
	{"reset before accept", func(s *script) {
		l := s.listener("tcp", "127.0.0.1:0")
		c := s.dialed(context.Background(), sannet.Dialer{}, "tcp", l.Addr().String())
		c.(conn).SetLinger(0)
		s.failed("close", c.Close())
		s.name(c.LocalAddr(), "CLIENT")
		sv, err := l.Accept()
		s.failed("accept", err)
		s.tidy(sv)
		for range 2 {
			n, err := sv.Read(make([]byte, 1))
			s.result("read", n, err)
		}
	}},
	{"several accepts", func(s *script) {
		l := s.listener("tcp", "127.0.0.1:0")
		var waits []func()
		for range 3 {
			waits = append(waits, s.park(func(s *script) {
				sv, err := l.Accept()
				s.failed("accept", err)
				s.tidy(sv)
			}))
		}
		for range 3 {
			s.dialed(context.Background(), sannet.Dialer{}, "tcp", l.Addr().String())
		}
		for _, wait := range waits {
			wait()
		}
		waits = nil
		for range 3 {
			waits = append(waits, s.park(func(s *script) {
				_, err := l.Accept()
				s.failed("accept", err)
			}))
		}
		s.failed("close", l.Close())
		for _, wait := range waits {
			wait()
		}
	}},
	{"accept deadline moved while parked", func(s *script) {
		l := s.listener("tcp", "127.0.0.1:0")
		deadline := l.(interface{ SetDeadline(time.Time) error }).SetDeadline
		deadline(future())
		wait := s.park(func(s *script) {
			sv, err := l.Accept()
			s.failed("accept", err)
			s.tidy(sv)
		})
		s.failed("later", deadline(future().Add(time.Hour)))
		s.failed("cleared", deadline(time.Time{}))
		s.dialed(context.Background(), sannet.Dialer{}, "tcp", l.Addr().String())
		wait()
		// A connection that is there does not help.
		s.dialed(context.Background(), sannet.Dialer{}, "tcp", l.Addr().String())
		s.failed("past", deadline(past))
		_, err := l.Accept()
		s.failed("accept", err)
		s.failed("cleared", deadline(time.Time{}))
		sv, err := l.Accept()
		s.failed("accept", err)
		s.tidy(sv)
	}},
	{"data and end before accept", func(s *script) {
		l := s.listener("tcp", "127.0.0.1:0")
		c := s.dialed(context.Background(), sannet.Dialer{}, "tcp", l.Addr().String())
		sent := pattern(10_000)
		n, err := c.Write(sent)
		s.result("write", n, err)
		s.failed("close", c.Close())
		sv, err := l.Accept()
		s.failed("accept", err)
		s.tidy(sv)
		got, err := io.ReadAll(sv)
		s.result("read", len(got), err)
		s.note("same: %t", bytes.Equal(sent, got))
	}},
}
