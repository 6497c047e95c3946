package sannet

// RoutesKept returns how many TCP connections are remembered.
func RoutesKept() (n int) {
	routes.Range(func(any, any) bool { n++; return true })
	return n
}
