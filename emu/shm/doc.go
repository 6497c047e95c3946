// Package shm is the emulated SAN between processes of one host: messages and RDMA transfers by shared
// memory.
//
// Two processes that have connections share one link: a unix socket, which carries what is rare and
// whose end tells of the death of the peer, and an arena of shared memory from each side. A connection
// is two inboxes, one in each arena. The owner of an inbox writes descriptors of receives into it, the
// peer takes them, copies messages to where they point and answers with events. A doorbell, one for
// each direction of a link, wakes a dispatcher if the owner of an inbox sleeps; a waiter that is alone
// has a doorbell of its own, which saves the dispatcher's hop (park.go), and looks again for a moment
// before it sleeps (spin.go).
//
// The other process is hostile. What lies in shared memory may change at any moment, so every word of a
// ring is loaded once, checked, and used as it was loaded; what it says is compared with what this side
// has granted. An inbox that says nonsense costs its connection, a socket that says nonsense the link.
//
// # Locks
//
// Who has one takes only later ones: socket.rx, endpoint.mu, arena.mu, link.mu, Node.mu, socket.tx.
// Nothing is called with Node.mu or socket.tx held.
//
// # Layers
//
// From the bottom up; a file uses what is below it.
//
//	config.go stub.go              what a process offers
//	memory_unsafe.go pause_*.go    what Go has no words for
//	race.go norace.go
//	wire.go segment.go inbox.go    what the processes share
//	socket.go                      messages, and descriptors, from process to process
//	arena.go                       memory for the peer
//	link.go                        what two processes have
//	endpoint.go cq.go              the state of a connection, and its completions
//	park.go spin.go                how a waiter waits
//	region.go append.go            memory; messages that grow
//	end.go reap.go                 how a connection ends
//	arm.go                         what wakes
//	send.go rdma.go receive.go     what goes, and comes
//	request.go node.go             how a connection begins
//	rendezvous.go                  how processes find each other
package shm
