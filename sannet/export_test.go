package sannet

// RoutesKept returns how many TCP connections are remembered.
func RoutesKept() (n int) {
	routes.Range(func(any, any) bool { n++; return true })
	return n
}

// PeerGone reports whether c knows that its peer has gone.
func PeerGone(c *Conn) bool { return c.s.Load().PeerGone() }
