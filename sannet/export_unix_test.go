//go:build unix

package sannet

// LimitPassed sets how large the state of a connection may be that is passed.
func LimitPassed(n int) (restore func()) {
	old := maxPassed
	maxPassed = n
	return func() { maxPassed = old }
}
