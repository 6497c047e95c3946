// Package sanswitch is the socket switch: it decides for each connection whether it goes over a system-area
// network (SAN) or over TCP, and says why. Listen takes both at one address. Dial tries the SAN with TCP as the
// net below.
package sanswitch

import (
	"errors"
	"net"
	"sync/atomic"
	"time"

	"sansock/internal/bubble"
	"sansock/provider"
	"sansock/session"
)

// Defaults of Config.
const (
	DefaultHeadStart   = 250 * time.Millisecond // as RFC 8305 has it between two attempts
	DefaultNegativeTTL = 30 * time.Second
)

// Bounds that keep a failing provider or a hostile peer from holding on to anything for long.
const (
	connectTimeout = 15 * time.Second // of a provider's Dial
	acceptTimeout  = 5 * time.Second  // of a provider's Accept of one request
	listenPatience = 5 * time.Second  // with providers that are asked what they serve

	maxWaiting  = 4096 // connections that wait for Accept, as many as the kernel lets wait (somaxconn)
	maxHalfOpen = 1024 // connections that are being set up, of one listener
)

// Config has the options of a Switch.
type Config struct {
	// Providers are the SANs to use, in order of preference. There may be none.
	Providers []provider.Provider

	// Session has the options of the sessions.
	Session session.Config

	// HeadStart is how long Dial waits for the SAN before it tries TCP as well. 0: DefaultHeadStart. Negative:
	// it does not wait.
	HeadStart time.Duration

	// NegativeTTL is how long at most Dial goes without the SAN to a destination that it could not reach over it: a second
	// at first, twice as long after each further failure in a row. 0: DefaultNegativeTTL. Negative: failures are not
	// remembered.
	NegativeTTL time.Duration
}

// Switch dials and listens. All methods may be called from any goroutine.
type Switch struct {
	session   session.Config
	lead      time.Duration
	table     *table
	negatives *negatives
	closed    atomic.Bool
	home      uint64 // the bubble of testing/synctest that it was made in

	waiting, halfOpen int // maxWaiting, maxHalfOpen; smaller in tests
}

// New returns a Switch, which owns the providers from then on.
func New(cfg Config) *Switch {
	if cfg.HeadStart == 0 {
		cfg.HeadStart = DefaultHeadStart
	}
	if cfg.NegativeTTL == 0 {
		cfg.NegativeTTL = DefaultNegativeTTL
	}
	return &Switch{
		session:   cfg.Session,
		lead:      cfg.HeadStart,
		table:     newTable(cfg.Providers),
		negatives: newNegatives(cfg.NegativeTTL),
		home:      bubble.ID(),
		waiting:   maxWaiting,
		halfOpen:  maxHalfOpen,
	}
}

// Close closes the providers, and with them everything that listens on their SANs: a listener on both paths
// goes on over TCP. Connections live on. Dial and Listen work without SANs from then on. Closing again does nothing.
func (s *Switch) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	var errs []error
	for _, p := range s.table.providers {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// disabled reports whether there is no SAN to think of: for there is none, or the caller is not
// where the switch was made, and the channels and timers of providers and sessions must not leave
// a bubble of testing/synctest.
func (s *Switch) disabled() bool {
	return len(s.table.providers) == 0 || s.closed.Load() || !s.Home()
}

// Home reports whether the caller may set up what the switch has made: it is in no bubble of
// testing/synctest, or in that of the switch.
func (s *Switch) Home() bool { return s.home == bubble.ID() }

// errBubble is why a SAN is not in use.
var errBubble = errors.New("a SAN is used only inside, or outside, of one testing/synctest bubble")

// whyDisabled tells more than that there is no SAN in use, if there is more.
func (s *Switch) whyDisabled() error {
	if len(s.table.providers) > 0 && !s.closed.Load() {
		return errBubble
	}
	return nil
}

// Result is a connection: exactly one of Session and Conn is set.
type Result struct {
	Session *session.Conn // over the SAN
	Conn    net.Conn      // a *net.TCPConn over TCP; for other networks what net returned
	Route   Route

	// KeepAlive is what a Control function has set of keep-alive on a connection over the SAN; nil if it has not.
	KeepAlive *net.KeepAliveConfig
}

// drop ends a connection that has lost a race: the peer, which may have it, sees a clean end.
func (r Result) drop() {
	if r.Session != nil {
		r.Session.Close()
		return
	}
	r.Conn.Close()
}

// abort ends a connection that nobody wants, as the kernel ends those that wait in a listener when it is closed:
// the peer sees a reset.
func (r Result) abort() {
	if r.Session != nil {
		r.Session.SetLinger(0)
		r.Session.Close()
		return
	}
	if c, ok := r.Conn.(*net.TCPConn); ok {
		c.SetLinger(0)
	}
	r.Conn.Close()
}
