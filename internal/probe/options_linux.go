package probe

import "golang.org/x/sys/unix"

// option is a socket option whose change says that a connection is to be over TCP.
type option struct {
	name       string
	level, num int
}

// Options that change what the network does with a connection, or where it goes to. Those that do
// not matter on a SAN, such as buffers and TCP_NODELAY, are not here.
var options = []option{
	{"IP_TOS", unix.IPPROTO_IP, unix.IP_TOS}, // sets SO_PRIORITY too
	{"SO_MARK", unix.SOL_SOCKET, unix.SO_MARK},
	{"SO_PRIORITY", unix.SOL_SOCKET, unix.SO_PRIORITY},
	{"SO_BINDTODEVICE", unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX},
	{"SO_DONTROUTE", unix.SOL_SOCKET, unix.SO_DONTROUTE},
	{"SO_OOBINLINE", unix.SOL_SOCKET, unix.SO_OOBINLINE},
	{"SO_LINGER", unix.SOL_SOCKET, unix.SO_LINGER},
	{"SO_MAX_PACING_RATE", unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE},
	{"SO_TXTIME", unix.SOL_SOCKET, unix.SO_TXTIME},
	{"SO_TIMESTAMPING", unix.SOL_SOCKET, unix.SO_TIMESTAMPING},
	{"SO_ATTACH_FILTER", unix.SOL_SOCKET, unix.SO_GET_FILTER},
	{"SO_LOCK_FILTER", unix.SOL_SOCKET, unix.SO_LOCK_FILTER},
	{"IP_TTL", unix.IPPROTO_IP, unix.IP_TTL},
	{"IP_OPTIONS", unix.IPPROTO_IP, unix.IP_OPTIONS},
	{"IP_MTU_DISCOVER", unix.IPPROTO_IP, unix.IP_MTU_DISCOVER},
	{"IP_TRANSPARENT", unix.IPPROTO_IP, unix.IP_TRANSPARENT},
	{"IP_FREEBIND", unix.IPPROTO_IP, unix.IP_FREEBIND},
	{"IP_MINTTL", unix.IPPROTO_IP, unix.IP_MINTTL},
	{"IP_UNICAST_IF", unix.IPPROTO_IP, unix.IP_UNICAST_IF},
	{"IP_LOCAL_PORT_RANGE", unix.IPPROTO_IP, unix.IP_LOCAL_PORT_RANGE},
	{"TCP_MAXSEG", unix.IPPROTO_TCP, unix.TCP_MAXSEG},
	{"TCP_SYNCNT", unix.IPPROTO_TCP, unix.TCP_SYNCNT},
	{"TCP_CONGESTION", unix.IPPROTO_TCP, unix.TCP_CONGESTION},
	{"TCP_FASTOPEN_CONNECT", unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT},
	{"TCP_ULP", unix.IPPROTO_TCP, unix.TCP_ULP},
	{"TCP_TX_DELAY", unix.IPPROTO_TCP, unix.TCP_TX_DELAY},
	{"TCP_WINDOW_CLAMP", unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP},
	{"TCP_REPAIR", unix.IPPROTO_TCP, unix.TCP_REPAIR},
}

// Those of IPv6 sockets, which have the others as well.
var options6 = []option{
	{"IPV6_V6ONLY", unix.IPPROTO_IPV6, unix.IPV6_V6ONLY},
	{"IPV6_TCLASS", unix.IPPROTO_IPV6, unix.IPV6_TCLASS},
	{"IPV6_UNICAST_HOPS", unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS},
	{"IPV6_MTU_DISCOVER", unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER},
	{"IPV6_DONTFRAG", unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG},
	{"IPV6_TRANSPARENT", unix.IPPROTO_IPV6, unix.IPV6_TRANSPARENT},
	{"IPV6_FREEBIND", unix.IPPROTO_IPV6, unix.IPV6_FREEBIND},
	{"IPV6_MINHOPCOUNT", unix.IPPROTO_IPV6, unix.IPV6_MINHOPCOUNT},
	{"IPV6_UNICAST_IF", unix.IPPROTO_IPV6, unix.IPV6_UNICAST_IF},
	{"IPV6_ADDR_PREFERENCES", unix.IPPROTO_IPV6, unix.IPV6_ADDR_PREFERENCES},
	{"IPV6_RTHDR", unix.IPPROTO_IPV6, unix.IPV6_RTHDR},
	{"IPV6_AUTOFLOWLABEL", unix.IPPROTO_IPV6, unix.IPV6_AUTOFLOWLABEL},
}
