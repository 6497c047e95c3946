package sanswitch

// Path is how a connection travels.
type Path uint8

const (
	PathTCP   Path = iota + 1 // over TCP
	PathSAN                   // over a SAN
	PathOther                 // over another network, which was left to net
)

// String returns "tcp", "san" or "other".
func (p Path) String() string {
	switch p {
	case PathTCP:
		return "tcp"
	case PathSAN:
		return "san"
	case PathOther:
		return "other"
	}
	return "unknown"
}

// Route says which path a connection took, and why.
type Route struct {
	Path     Path
	Provider string // name of the provider, on the SAN path
	Reason   Reason // why this side took the path
	Peer     Reason // what the peer gave as its reason; ReasonNone if it said nothing
	Err      error  // the failure on the SAN that led to another path, for people to read; nil on the SAN path
}
