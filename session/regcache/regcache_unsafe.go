package regcache

import "unsafe"

// address returns where p points to. The number does not keep the memory alive.
func address(p *byte) uintptr { return uintptr(unsafe.Pointer(p)) }
