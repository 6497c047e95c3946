// Package shm is the emulated SAN between processes of one host: messages and RDMA transfers by shared memory.
//
// Two processes that have connections share one link: a unix socket, which carries what is rare and whose end
// tells of the death of the peer, and an arena of shared memory from each side. A connection is two inboxes, one in each
// arena. The owner of an inbox writes descriptors of receives into it, the peer takes them, copies messages to where they
// point and answers with events. A doorbell, one for each direction of a link, wakes a dispatcher if the owner of an
// inbox sleeps; a waiter that is alone has a doorbell of its own, which saves the dispatcher's hop, and looks again for
// a moment before it sleeps (spin.go).
//
// The other process is hostile. What lies in shared memory may change at any moment, so every word of a ring is loaded
// once, checked, and used as it was loaded; what it says is compared with what this side has granted. An inbox
// that says nonsense costs its connection, a socket that says nonsense the link.
package shm
