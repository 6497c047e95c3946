//go:build ofi && cgo && linux

package ofi

// For tests of packages above, which this one must not import.
var (
	Opened   = opened
	TestAddr = &testAddr
)
