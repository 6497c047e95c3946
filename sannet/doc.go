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
//
// For clients of HTTP there is package sanhttp.
//
// A connection over TCP is a *net.TCPConn, one over the SAN a *Conn. InfoOf tells which it is, and why.
//
// The environment variable SANNET_PROVIDERS lists the SANs to use, in order of preference: "emu"
// is the emulated SAN, between the programs of one user on this host (within one process where
// that is not Linux), and the default; "ofi" is real fabrics, with the build tag of that name,
// which adds it to the default; "none" is TCP alone. It is read once, at first use. What cannot
// be opened is left out: Providers tells which there are, and why there are no others, and so do
// Info.Err, errors on the network "san", and a line in the log where SANNET_PROVIDERS has asked
// for it. A program that wants to choose by itself sets the field Switch of Dialer and
// ListenConfig.
//
// # Without a copy
//
// Large writes cross by RDMA: the peer's Read gets the bytes straight from the writer's slice. Conn.NewBuffer,
// WriteBuffer and ReadBuffer save the copies of smaller ones too. WatchMemory is for mapped files and the like.
//
// # Urgent data
//
// Conn.WriteUrgent sends a short message past all data that waits, and Conn.ReadUrgent receives it beside the stream.
//
// # Hand-over
//
// SendConn passes a connection to another process, over a SAN or over TCP, while the peer waits. Listener.Drain, TCPFile and
// FileListener do likewise for a listener. So a server can be replaced under load: see examples/restart.
//
// # Differences from *net.TCPConn
//
// A *Conn behaves and fails as a *net.TCPConn does, except for these:
//
//   - A listener for TCP networks is a *Listener, also where it takes TCP alone, and no *net.TCPListener.
//   - There are no SyscallConn, File and MultipathTCP, and a Listener has no SyscallConn, File and AcceptTCP: there is no
//     socket, and programs that find one read from it past the connection.
//   - In a bubble of testing/synctest there is no SAN: connections go over TCP. A test may make one
//     there, with a Switch of its own.
//   - A Control function sees a socket that is not that of a connection over the SAN. What it sets of
//     keep-alive is taken over. If it sets anything else that matters, such as SO_MARK, or binds it,
//     the connection, or listener, stays on TCP, and on other systems than Linux it always does.
//   - SetNoDelay and SetWriteBuffer change nothing: what a Write has taken is with the peer when it returns.
//   - SetReadBuffer counts bytes of data, where the kernel counts its own memory and doubles and limits the figure.
//   - What arrives after CloseRead is dropped, and only what came before can be read. Linux keeps it, hands it to later
//     reads, and holds up the peer's writes once its buffer is full.
//   - net.Buffers writes its parts one by one, so that they may mix with other writes, and errors say write, not writev. Those of
//     ReadFrom say write, too, and not sendfile or splice.
//   - Memory that is not there, such as that of a mapped file beyond its end, is a fault of the program, where a socket says
//     EFAULT.
//   - The ports of clients are the SAN's, not the kernel's. So one may be in use over TCP at the same time, and a listener may have two
//     connections of the same RemoteAddr, one of each path.
//   - With keep-alive off, a Write to a host that is lost fails when the SAN notices. TCP gives up after a quarter of an hour.
//   - Nobody answers, or delivers, for a process that does not run. One that is stopped for longer than its peers'
//     keep-alive allows, 150 seconds by default, loses its connections. What it has not taken a minute after its peer
//     closed a connection is lost to it.
//   - The end of a process looks as over TCP, between processes of a host. Over a network fabric the card forgets what a dead
//     process had written and the card had not sent, and a connection that was left open is reset.
//   - A listener may, when the SAN is slow, see a second connection of a client, over TCP, that ends at once:
//     Dial tried both, and took the SAN's.
package sannet
