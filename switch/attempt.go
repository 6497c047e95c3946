package sanswitch

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"syscall"
	"time"

	"sansock/provider"
	"sansock/session"
)

// attempt is a dial over the SAN.
type attempt struct {
	session session.Config
	dst     netip.AddrPort
	ways    []way // the providers to try one after the other, at least one
	local   netip.AddrPort

	// reached, if not nil, is called once a peer has accepted on the SAN.
	reached func()

	// waits, if not nil, is called where the attempt waits for room in the peer's backlog.
	waits func()
}

// Who finds a backlog full asks again after a pause, and after twice as long each time, and gives
// up where TCP does.
const (
	minFullPause = time.Millisecond
	maxFullPause = time.Second
	fullTimeout  = 127 * time.Second
)

// failure is the error of an attempt.
type failure struct {
	err   error // what failed
	final error // if not nil, what TCP would fail with too, as net would have it

	// lesson is that of the attempt: the weightiest where several providers have failed.
	lesson lesson
	took   time.Duration // the attempt
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// prompt reports whether attempts over these ways end as soon as their context does.
func prompt(ways []way) bool {
	for _, w := range ways {
		if _, ok := w.provider.(provider.EarlyDialer); !ok {
			return false
		}
	}
	return true
}

// run makes the attempt: the first provider that connects, or refuses for good, ends it. The error is a *failure, that of
// the first provider if there are several.
func (a *attempt) run(ctx context.Context) (Result, error) {
	start := time.Now()
	var first *failure
	for _, w := range a.ways {
		s, f := a.connectWaiting(ctx, w)
		if f == nil {
			return Result{Session: s, Route: Route{Path: PathSAN, Provider: w.provider.Name(), Reason: ReasonSAN}}, nil
		}
		f.took = time.Since(start)
		f.lesson = lessonOf(f.err, f.took)
		if f.final != nil || ctx.Err() != nil {
			return Result{}, f
		}
		if first == nil {
			first = f
		}
		first.lesson, first.took = max(first.lesson, f.lesson), f.took
	}
	return Result{}, first
}

// connectWaiting is connect that waits for room in the peer's backlog.
func (a *attempt) connectWaiting(ctx context.Context, w way) (*session.Conn, *failure) {
	began := time.Now()
	for pause := minFullPause; ; pause = min(2*pause, maxFullPause) {
		s, f := a.connect(ctx, w)
		if f == nil || rejectionOf(f.err) != rejectFull || time.Since(began) >= fullTimeout {
			return s, f
		}
		if a.waits != nil {
			a.waits()
		}
		timer := time.NewTimer(pause/2 + rand.N(pause)) // so that a crowd spreads
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, f
		}
	}
}

// connect makes a session over one provider.
func (a *attempt) connect(ctx context.Context, w way) (*session.Conn, *failure) {
	o := session.Open(session.Dialer, over(a.session, w.provider))
	dialCtx, cancel := context.WithTimeout(ctx, connectTimeout)
	begun, err := dialAndBegin(dialCtx, w.provider, a.localOn(w), a.dst, o)
	cancel()
	if err != nil && begun {
		return nil, &failure{err: err}
	}
	if err != nil {
		f := &failure{err: a.worded(err), final: refusal(err)}
		if a.local.Port() != 0 && errors.Is(err, provider.StatusAddrInUse) {
			// TCP does not know of it, and the peer would have two connections of the same address.
			f.final = os.NewSyscallError("bind", syscall.EADDRINUSE)
		}
		return nil, f
	}
	if a.reached != nil {
		a.reached()
	}
	s, err := o.Conclude(ctx)
	if err != nil {
		return nil, &failure{err: err}
	}
	return s, nil
}

// worded gives an error of a provider's dial the words for what is behind it, where its status
// has others.
func (a *attempt) worded(err error) error {
	var e *provider.Error
	if !errors.As(err, &e) {
		return err
	}
	cause := error(nil)
	switch {
	case reasonOf(err) == ReasonOtherUser:
		cause = errOtherUser
	case e.Status == provider.StatusAddrNotAvail && a.local.Port() == 0:
		cause = errPorts // the address was found to be the provider's
	default:
		return err
	}
	text := e.Provider + ": " + e.Op + ": " + cause.Error()
	return &wordedError{text: text, cause: cause, err: err}
}

// What is behind a failure of a dial.
var (
	errOtherUser = errors.New("what listens there belongs to another user")
	errPorts     = errors.New("no free port to dial from")
)

// wordedError is an error with another text.
type wordedError struct {
	text       string
	cause, err error
}

func (e *wordedError) Error() string   { return e.text }
func (e *wordedError) Unwrap() []error { return []error{e.cause, e.err} }

// dialAndBegin makes a connection and begins the session on it. begun tells that an error is the session's.
func dialAndBegin(ctx context.Context, p provider.Provider, local, remote netip.AddrPort, o *session.Opening) (begun bool, err error) {
	if early, ok := p.(provider.EarlyDialer); ok {
		_, err = early.DialEarly(ctx, local, remote, func(ep provider.Endpoint) error {
			err := o.Begin(ep, nil)
			begun = err != nil
			return err
		})
		if err != nil {
			o.Drop()
		}
		return begun, err
	}
	ep, err := p.Dial(ctx, local, remote)
	if err != nil {
		return false, err
	}
	return true, o.Begin(ep, nil)
}

// over is the configuration of sessions over p, which can be handed over.
func over(cfg session.Config, p provider.Provider) session.Config {
	cfg.Provider = p
	return cfg
}

// localOn is the local address to bind to. A provider chooses the address of this host and the port, but not one of
// them alone without knowing the other's family.
func (a *attempt) localOn(w way) netip.AddrPort {
	if a.local.Port() != 0 && a.local.Addr().IsUnspecified() {
		return netip.AddrPortFrom(w.local, a.local.Port())
	}
	if a.local.Port() == 0 && a.local.Addr().IsUnspecified() {
		return netip.AddrPort{}
	}
	return a.local
}
