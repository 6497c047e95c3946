//go:build linux && race

package shm

import "sync/atomic"

// The race detector does not see what happens in shared memory, and so not the order that it makes between two ends that
// are in one process, as they are in tests.
var order atomic.Uint64

// raced tells that the race detector is at work.
const raced = true

func published() { order.Add(1) }
func observed()  { order.Load() }
