package sannet

import "sansock/session/regcache"

// WatchMemory lets registrations of b be kept between large writes and reads, as those of Go's own memory are, where the
// SAN wants memory to be registered. It is for memory that is not Go's, such as a file that is mapped: nobody can
// see when that goes away, so that without this it is registered anew for every transfer.
//
// The program promises to call stop before b is unmapped, mapped anew or freed, and while no Read or Write uses it.
// After stop nothing remembers what b was. It may be called again.
func WatchMemory(b []byte) (stop func()) { return regcache.Watch(b) }
