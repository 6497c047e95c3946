package patch

// prologue is code at the beginning of a function. $0 stands for its receiver, $1 for its first
// parameter, and so on.
type prologue struct{ name, signature, text string }

// option is a prologue of a function that sets an option of its first parameter, a netFD.
func option(name, signature, call string) prologue {
	return prologue{name, signature, "if c := $1.san(); c != nil { return " + call + " }"}
}

// deadline is one of a method that sets a deadline.
func deadline(name, which string) prologue {
	return prologue{name, "func(time.Time) error",
		"if done, err := $0.sangoDeadline($1, " + which + "); done { return err }"}
}

// Where a netFD uses its socket, one that is over the SAN does otherwise. TCPConn, TCPListener
// and the errors that they make are above that, name resolution and Happy Eyeballs too, and stay
// as they are.
var prologues = []prologue{
	{"(*netFD).Close", "func() error", "if done, err := $0.sangoClose(); done { return err }"},
	{"(*netFD).shutdown", "func(int) error", "if c := $0.san(); c != nil { return $0.sangoShutdown(c, $1) }"},
	{"(*netFD).Read", "func([]byte) (int, error)", "if c := $0.san(); c != nil { return $0.sangoRead(c, $1) }"},
	{"(*netFD).Write", "func([]byte) (int, error)", "if c := $0.san(); c != nil { return $0.sangoWrite(c, $1) }"},
	{"(*netFD).writeBuffers", "func(*Buffers) (int64, error)",
		"if c := $0.san(); c != nil { return $0.sangoWriteBuffers(c, $1) }"},
	{"(*netFD).dup", "func() (*os.File, error)", "if err := $0.sangoLeave(false); err != nil { return nil, err }"},
	deadline("(*netFD).SetDeadline", "true, true"),
	deadline("(*netFD).SetReadDeadline", "true, false"),
	deadline("(*netFD).SetWriteDeadline", "false, true"),
	option("setReadBuffer", "func(*netFD, int) error", "sangoOption($1, c.SetReadBuffer($2))"),
	option("setWriteBuffer", "func(*netFD, int) error", "sangoOption($1, c.SetWriteBuffer($2))"),
	option("setLinger", "func(*netFD, int) error", "sangoOption($1, c.SetLinger($2))"),
	option("setNoDelay", "func(*netFD, bool) error", "sangoOption($1, c.SetNoDelay($2))"),
	option("setKeepAlive", "func(*netFD, bool) error", "sangoOption($1, c.SetKeepAlive($2))"),
	option("setKeepAliveIdle", "func(*netFD, time.Duration) error", "sangoKeepAliveIdle($1, c, $2)"),
	option("setKeepAliveInterval", "func(*netFD, time.Duration) error", "sangoKeepAliveInterval($1, c, $2)"),
	option("setKeepAliveCount", "func(*netFD, int) error", "sangoKeepAliveCount($1, c, $2)"),
	{"isUsingMultipathTCP", "func(*netFD) bool", "if $1.san() != nil { return false }"},
	{"sendFile", "func(*netFD, io.Reader) (int64, error, bool)", "if sangoCopies($1, $2) { return 0, nil, false }"},
	{"spliceFrom", "func(*netFD, io.Reader) (int64, error, bool)", "if sangoCopies($1, $2) { return 0, nil, false }"},
	{"(*TCPConn).writeTo", "func(io.Writer) (int64, error)",
		"if s := $0.fd.san(); s != nil { return $0.sangoWriteTo(s, $1) }"},
	{"(*TCPConn).SyscallConn", "func() (syscall.RawConn, error)",
		"if $0.ok() && $0.fd.san() != nil { return sangoRaw{$0.fd}, nil }"},
}

// renames get the suffix Plain: the file that is added has the function in their place, which
// calls them.
var renames = []string{
	"(*sysDialer).doDialTCPProto",
	"(*sysListener).listenTCPProto",
	"(*netFD).accept",
	"fileListener",
}

// uses are the functions that the added file calls, or replaces.
var uses = map[string]string{
	"(*sysDialer).doDialTCPProto":   "func(context.Context, *TCPAddr, *TCPAddr, int) (*TCPConn, error)",
	"(*sysListener).listenTCPProto": "func(context.Context, *TCPAddr, int) (*TCPListener, error)",
	"(*netFD).accept":               "func() (*netFD, error)",
	"fileListener":                  "func(*os.File) (Listener, error)",
	"newTCPConn": "func(*netFD, time.Duration, KeepAliveConfig, func(*netFD), func(KeepAliveConfig)) " +
		"*TCPConn",
	"favoriteAddrFamily":   "func(string, sockaddr, sockaddr, string) (int, bool)",
	"newRawConn":           "func(*netFD) *rawConn",
	"newRawListener":       "func(*netFD) *rawListener",
	"wrapSyscallError":     "func(string, error) error",
	"roundDurationUp":      "func(time.Duration, time.Duration) time.Duration",
	"(*Buffers).consume":   "func(int64)",
	"(*conn).ok":           "func() bool",
	"TCPAddrFromAddrPort":  "func(netip.AddrPort) *TCPAddr",
	"(*TCPAddr).AddrPort":  "func() netip.AddrPort",
	"ListenUnix":           "func(string, *UnixAddr) (*UnixListener, error)",
	"InterfaceAddrs":       "func() ([]Addr, error)",
	"(*netFD).setAddr":     "func(Addr, Addr)",
	"(*rawConn).Control":   "func(func(uintptr)) error",
	"(*rawConn).Read":      "func(func(uintptr) bool) error",
	"(*rawConn).Write":     "func(func(uintptr) bool) error",
	"(*conn).writeBuffers": "func(*Buffers) (int64, error)",
}

// fieldsUsed are the fields that the added file relies on.
var fieldsUsed = map[string][]string{
	"netFD": {"pfd poll.FD", "family int", "sotype int", "isConnected bool",
		"net string", "laddr Addr", "raddr Addr"},
	"sysDialer":   {"Dialer", "network string"},
	"sysListener": {"ListenConfig"},
	"TCPListener": {"fd *netFD"},
	"TCPConn":     {"conn"},
	"conn":        {"fd *netFD"},
	"Dialer": {"KeepAlive time.Duration", "KeepAliveConfig KeepAliveConfig",
		"Control func(string, string, syscall.RawConn) error",
		"ControlContext func(context.Context, string, string, syscall.RawConn) error"},
	"ListenConfig": {"Control func(string, string, syscall.RawConn) error"},
}

// declared are constants, variables and types that the added file uses.
var declared = []string{
	"readSyscallName", "writeSyscallName", "defaultTCPKeepAliveIdle", "defaultTCPKeepAliveInterval",
	"defaultTCPKeepAliveCount", "testPreHookSetKeepAlive", "testHookSetKeepAlive", "tcpConnWithoutWriteTo",
	"OpError", "Listener", "Buffers", "UnixConn", "UnixListener", "UnixAddr", "IPNet",
}

// sockets are the functions that use the socket of a netFD, pfd. A connection over the SAN comes
// to none of those that are no prologue: they are for other kinds of sockets, for new ones, or
// below what is patched.
var sockets = []string{
	"(*netFD).Close", "(*netFD).Read", "(*netFD).SetDeadline", "(*netFD).SetReadDeadline",
	"(*netFD).SetWriteDeadline", "(*netFD).Write", "(*netFD).accept", "(*netFD).connect",
	"(*netFD).dial", "(*netFD).dup", "(*netFD).init", "(*netFD).listenDatagram",
	"(*netFD).listenStream", "(*netFD).readFrom", "(*netFD).readFromInet4",
	"(*netFD).readFromInet6", "(*netFD).readMsg", "(*netFD).readMsgInet4",
	"(*netFD).readMsgInet6", "(*netFD).shutdown", "(*netFD).writeBuffers", "(*netFD).writeMsg",
	"(*netFD).writeMsgInet4", "(*netFD).writeMsgInet6", "(*netFD).writeTo",
	"(*netFD).writeToInet4", "(*netFD).writeToInet6", "(*rawConn).Control", "(*rawConn).PollFD",
	"(*rawConn).Read", "(*rawConn).Write", "hasFallenBack", "isUsingMPTCPProto", "joinIPv4Group",
	"joinIPv6Group", "sendFile", "setIPv4MulticastInterface", "setIPv4MulticastLoopback",
	"setIPv6MulticastInterface", "setIPv6MulticastLoopback", "setKeepAlive", "setKeepAliveCount",
	"setKeepAliveIdle", "setKeepAliveInterval", "setLinger", "setNoDelay", "setReadBuffer",
	"setWriteBuffer", "spliceFrom", "spliceTo",
}
