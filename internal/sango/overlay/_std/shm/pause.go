package shm

import _ "unsafe" // for linkname

// pause leaves the core to its other thread, and the memory alone, n times.
func pause(n uint32) { procyield(n) }

//go:linkname procyield runtime.procyield
func procyield(cycles uint32)
