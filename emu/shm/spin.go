//go:build linux

package shm

// Spin implements provider.Spinner.
func (e *endpoint) Spin() (ready bool) { return false }
