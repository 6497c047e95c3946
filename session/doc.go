// Package session is the session protocol: it makes a reliable stream each way of a connection that carries messages
// and RDMA transfers, package provider's Endpoint. It brings what an application expects of a socket and a SAN does not
// have: flow control by credits, buffering, deadlines, half-close, linger and keep-alive. It moves large writes by RDMA.
// Negotiate makes a Conn of an endpoint. docs/protocol.md says what goes over the wire, docs/architecture.md how a Read
// and a Write go through the files.
//
// A Conn's methods drive the protocol themselves, in the goroutine of their caller; others run only while something has
// to go on without one.
//
// # Layers
//
// From the bottom up; a file uses what is below it.
//
//	errors.go                      what can go wrong
//	config.go                      what is asked for, and what was done
//	wire.go                        messages
//	ticket.go                      where a suspended session goes on
//	hello.go                       the first message of each end
//	window.go                      credits: what may be sent
//	regions.go                     buffers of messages, incoming and outgoing
//	line.go memory.go              an endpoint, with all of that; the application's memory
//	stream.go                      what the application sees
//	core.go                        the state of the protocol, and what is to be sent
//	core_size.go                   the receive region grows and shrinks
//	core_read.go                   what was received is read
//	inbound.go                     a large write of the peer's
//	outbound.go                    a large write of ours
//	urgent.go                      messages beside the stream
//	suspension.go                  hand-over: the protocol's part
//	core_send.go                   what leaves
//	core_end.go                    how a connection ends
//	core_recv.go                   what arrives
//	tuner.go                       when RDMA pays off
//	conn.go wait.go                a Conn, and how it waits
//	close.go timers.go             how it ends, and what happens by itself
//	read.go write.go buffer.go     the application's calls
//	ready.go urgent_conn.go
//	negotiate.go                   the exchange of hellos
//	open.go                        a session that is being set up
//	state.go                       hand-over: what is passed on
//	callers.go passive.go          hand-over: who stays
//	handover.go                    hand-over: who goes
package session
