// Package emu is the emulated SAN: a provider for the addresses of this host whose NIC, wire and
// memory driver are software. It keeps the rules of hardware, and is fast enough to be the default:
// a message is one copy into the peer's posted receive, an RDMA transfer one copy between the two
// memories.
//
// Within the process the ends of a connection are made for each other. Between processes of one
// user the same is done by shared memory, see package shm; connections there have smaller limits,
// which their Attributes tell.
//
// Config has knobs that make it slow, small or faulty, for tests and study.
//
// # Locks
//
// The lock of an endpoint is the first, and that of the peer is never taken with it. Below it is
// proxy.mu. Below Provider.mu are Fabric.mu and the locks of package shm. The others are leaves: with
// link.mu, listener.mu, request.mu and faults.mu none of this package is taken.
//
// # Layers
//
// From the bottom up; a file uses what is below it.
//
//	proxy.go                       memory that the device reaches
//	fault.go                       steps that fail
//	fabric.go                      which addresses are taken
//	provider.go                    the state of a provider
//	endpoint.go lock.go            the state of an endpoint, and its lock
//	cq.go slow.go                  completions
//	receive.go                     what comes
//	link.go                        a connection that takes time
//	end.go                         how a connection ends
//	op.go                          an operation begins and ends
//	send.go append.go rdma.go      what goes
//	region.go                      registered memory
//	knobbed.go                     an endpoint with knobs
//	listener.go dial.go across.go  how a connection begins
//	config.go open.go tools.go     what a user sees
package emu
