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
// With Node.mu, socket.tx and theirs.mu no other is taken.
//
// # Layers
//
// From the bottom up; a file uses what is below it.
//
//	config.go *supported.go        what a process offers
//	memory_unsafe.go pause_*.go    what Go has no words for
//	race.go norace.go
//	cgroup.go creds.go bell.go     what the kernel says and does
//	wire.go segment.go inbox.go    what the processes share
//	socket.go                      messages from process to process
//	node.go budget.go claims.go    a process, and what it may have and say
//	meeting.go
//	arena.go                       memory for the peer
//	link.go roster.go dispatch.go  what two processes have
//	endpoint.go                    the state of a connection
//	append.go cq.go region.go      messages that grow, completions, memory
//	spin.go park.go                how a waiter waits
//	end.go reap.go                 how a connection ends
//	send.go rdma.go receive.go     what goes, and comes
//	arm.go                         what wakes
//	request.go dialed.go           how a connection begins
//	control.go                     what comes by the socket
//	proof.go                       that a process listens
//	rendezvous.go places.go        how two processes find each other
//	greet.go meet.go
//	dial.go peer.go stub.go        what a caller sees
package shm
