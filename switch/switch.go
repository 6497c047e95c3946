// Package sanswitch is the socket switch: it decides for each connection whether it goes over a system-area
// network (SAN) or over TCP, and says why. It listens on both at one address, and dials the SAN with TCP as the
// net below.
package sanswitch

import (
	"context"
	"errors"
	"net"
	"time"

	"sansock/provider"
	"sansock/session"
)

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
	return "invalid path"
}

// Route says which path a connection took, and why.
type Route struct {
	Path     Path
	Provider string // name of the provider, on the SAN path
	Reason   Reason // why this side took the path
	Peer     Reason // what the peer gave as its reason, ReasonNone if it said nothing
	Err      error  // the failure on the SAN that led to another path, for people to read; nil on the SAN path
}

// Result is a connection: exactly one of Session and Conn is set.
type Result struct {
	Session *session.Conn // over the SAN
	Conn    net.Conn      // a *net.TCPConn over TCP; for other networks what net returned
	Route   Route
}

// Defaults of Config.
const (
	DefaultHeadStart   = 50 * time.Millisecond
	DefaultNegativeTTL = 30 * time.Second
)

// Config has the options of a Switch.
type Config struct {
	// Providers are the SANs to use, in order of preference. There may be none.
	Providers []provider.Provider

	// Session has the options of the sessions.
	Session session.Config

	// HeadStart is how long Dial waits for the SAN before it tries TCP too. 0: DefaultHeadStart. Negative: not at all.
	HeadStart time.Duration

	// NegativeTTL is how long Dial goes without the SAN to a destination that it has failed to reach
	// over it. 0: DefaultNegativeTTL. Negative: not at all.
	NegativeTTL time.Duration
}

// Switch dials and listens. All methods may be called from any goroutine.
type Switch struct {
	cfg Config
}

// New returns a Switch, which owns the providers from then on.
func New(cfg Config) *Switch {
	return &Switch{cfg: cfg}
}

// Close closes the providers, and with them what listens on their SANs. Connections live on, as do listeners on TCP, and Dial
// and Listen go on over TCP.
func (s *Switch) Close() error { return errors.New("not yet") }

// Dial is being written.
func (s *Switch) Dial(ctx context.Context, d *net.Dialer, network, address string) (Result, error) {
	c, err := d.DialContext(ctx, network, address)
	return Result{Conn: c, Route: Route{Path: PathTCP, Reason: ReasonDisabled}}, err
}

// Listen is being written.
func (s *Switch) Listen(ctx context.Context, lc *net.ListenConfig, network, address string) (*Listener, error) {
	ln, err := lc.Listen(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &Listener{ln: ln}, nil
}

// Listener is being written.
type Listener struct{ ln net.Listener }

// Accept is being written.
func (l *Listener) Accept() (Result, error) {
	c, err := l.ln.Accept()
	return Result{Conn: c, Route: Route{Path: PathTCP, Reason: ReasonDisabled}}, err
}

// Close is being written.
func (l *Listener) Close() error { return l.ln.Close() }

// Addr is being written.
func (l *Listener) Addr() net.Addr { return l.ln.Addr() }

// SetDeadline is being written.
func (l *Listener) SetDeadline(t time.Time) error {
	return l.ln.(interface{ SetDeadline(time.Time) error }).SetDeadline(t)
}
