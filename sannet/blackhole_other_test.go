//go:build !linux

package sannet_test

// blackHole: there is none here.
func (s *script) blackHole() string { return "" }
