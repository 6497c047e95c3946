package sannet_test

import (
	"context"
	"fmt"
	"net"

	"github.com/stretchr/testify/require"

	"sansock/sannet"
)

// otherAddr is an address of a network that net does not know.
type otherAddr string

func (otherAddr) Network() string  { return "other" }
func (a otherAddr) String() string { return string(a) }

// localAddrs are what programs, and their mistakes, put into Dialer.LocalAddr.
var localAddrs = []net.Addr{
	nil,
	(*net.TCPAddr)(nil),
	&net.TCPAddr{},
	&net.TCPAddr{IP: net.IP{}},
	&net.TCPAddr{IP: net.IPv4zero},
	&net.TCPAddr{IP: net.IPv4zero.To4()},
	&net.TCPAddr{IP: net.IPv6zero},
	&net.TCPAddr{IP: net.IPv6zero, Zone: "lo"},
	&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)},
	&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1).To4()},
	&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Zone: "lo"},
	&net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)},
	&net.TCPAddr{IP: net.IPv6loopback},
	&net.TCPAddr{IP: net.IPv6loopback, Zone: "lo"},
	&net.TCPAddr{IP: net.IPv6loopback, Zone: "nosuch"},
	// Not of this host, or of no host.
	&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)},
	&net.TCPAddr{IP: net.IPv4bcast},
	&net.TCPAddr{IP: net.IPv4allsys},
	&net.TCPAddr{IP: net.ParseIP("2001:db8::1")},
	&net.TCPAddr{IP: net.ParseIP("fe80::1")},
	&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "lo"},
	&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "nosuch"},
	&net.TCPAddr{IP: net.IPv6linklocalallnodes},
	&net.TCPAddr{IP: net.ParseIP("::127.0.0.1")},
	// Not an address.
	&net.TCPAddr{IP: net.IP{127, 0}},
	&net.TCPAddr{IP: net.IP{0, 0}},
	&net.TCPAddr{IP: net.IP{127, 0, 0, 1, 1}},
	&net.TCPAddr{IP: make(net.IP, 15)},
	&net.TCPAddr{IP: make(net.IP, 17)},
	&net.TCPAddr{Port: -1},
	&net.TCPAddr{Port: 65536},
	&net.TCPAddr{Port: 99999},
	&net.TCPAddr{Port: 1<<31 - 1},
	&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: -1},
	&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 99999},
	&net.TCPAddr{IP: net.IPv6loopback, Port: 99999},
	&net.TCPAddr{IP: net.IPv6zero, Port: -65536},
	&net.TCPAddr{IP: net.IP{127, 0}, Port: 99999},
	// Of another type.
	&net.UDPAddr{},
	&net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)},
	(*net.UDPAddr)(nil),
	&net.IPAddr{IP: net.IPv4(127, 0, 0, 1)},
	&net.UnixAddr{Name: "/nowhere", Net: "unix"},
	otherAddr("127.0.0.1:0"),
}

// inUse returns the address of a listener that is no business of the test's paths.
func (s *script) inUse() net.Addr {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(s, err)
	s.tidy(l)
	return l.Addr()
}

// localCases are about Dialer.LocalAddr: what net refuses is refused with net's error, and what it
// takes is taken.
var localCases = []likeCase{
	{"dial from a port in use", func(s *script) {
		l := s.listener("tcp", "127.0.0.1:0")
		busy := s.inUse()
		s.name(busy, "BUSY")
		port := busy.(*net.TCPAddr).Port
		s.rename(fmt.Sprintf(":%d", port), ":BUSY")
		for _, la := range []net.Addr{l.Addr(), busy, &net.TCPAddr{Port: port}} {
			s.dialed(context.Background(), sannet.Dialer{LocalAddr: la}, "tcp", l.Addr().String())
		}
	}},
	{"dial from any local address", func(s *script) {
		for _, host := range []string{"127.0.0.1", "[::1]"} {
			l := s.listener("tcp", host+":0")
			accepted := make(chan net.Conn)
			go func() {
				defer close(accepted)
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					accepted <- c
				}
			}()
			s.rename(":"+port(l.Addr()), ":PORT")
			for _, to := range []string{host + ":", ":", "localhost:"} {
				for _, network := range []string{"tcp", "tcp4", "tcp6"} {
					for _, la := range localAddrs {
						s.note("%s to %s from %T %[3]v", network, to, la)
						s.dialFrom(la, network, to+port(l.Addr()), accepted)
					}
				}
			}
			l.Close()
			for c := range accepted {
				c.Close()
			}
		}
	}},
}

// dialFrom dials from a local address, and writes down how that went.
func (s *script) dialFrom(la net.Addr, network, address string, accepted <-chan net.Conn) {
	c, err := s.dialWith(context.Background(), sannet.Dialer{LocalAddr: la}, network, address)
	s.failed("dial", err)
	if err != nil {
		return
	}
	local := c.LocalAddr().(*net.TCPAddr)
	s.note("from %v %q to %v", local.IP, local.Zone, c.RemoteAddr().(*net.TCPAddr).IP)
	c.Close()
	(<-accepted).Close()
}
