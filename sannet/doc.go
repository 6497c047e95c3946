// Package sannet puts net.Conn on a system-area network (SAN), such as RDMA, where there is one, and on TCP where not.
//
// Dial and Listen stand in for those of package net:
//
//	l, err := sannet.Listen("tcp", ":8080") // takes TCP and SAN connections on one port
//	c, err := sannet.Dial("tcp", "db1:5432") // over the SAN if db1 listens there too, else over TCP
//
// Servers and clients that bring their own connections need no more than that:
//
//	http.Serve(l, handler)
//	http.Transport{DialContext: sannet.DialContext}
//
// A connection over TCP is a *net.TCPConn, one over the SAN a *Conn. InfoOf tells which it is, and why. The
// environment variable SANNET_PROVIDERS lists the SANs to use, for example "emu" or "none"; the default is
// the emulated SAN between the programs of this host.
//
// # Differences from *net.TCPConn
//
// A *Conn behaves and fails as a *net.TCPConn does, except for these:
//
//   - There are no SyscallConn, File and MultipathTCP, and a Listener has no SyscallConn, File and AcceptTCP: there is no
//     socket, and programs that find one read from it past the connection.
//   - Control functions are not called for connections over the SAN, for the same reason.
//   - SetNoDelay changes nothing: small writes are gathered only while they have to wait anyway.
//   - SetReadBuffer and SetWriteBuffer count bytes of data exactly, without the kernel's limits and
//     bookkeeping, so that the same figures hold more or less than TCP's.
package sannet
