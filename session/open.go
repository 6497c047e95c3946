package session

import (
	"context"
	"sync/atomic"
	"time"

	"sansock/provider"
)

// Opening is a session that is being set up: Begin, and then either Conclude, or Advance until there is a Conn, or an error.
// Begin is what a provider.EarlyDialer or provider.EarlyRequest calls, so that the hellos travel with the connection
// request and its acceptance. One goroutine at a time may use it.
type Opening struct {
	side  Side
	cfg   Config
	n     negotiation
	conn  *Conn     // locked; nil: not begun, or over
	wakes *redirect // nil: wake-ups are the Conn's
	err   error     // why there will be no session, after the peer has been told
}

// redirect is a wake function whose target changes once: from who sets up a session to the Conn that it becomes.
type redirect struct{ to atomic.Pointer[func()] }

func redirectTo(wake func()) *redirect {
	r := new(redirect)
	r.turn(wake)
	return r
}

// turn changes the target. What the old one was told until then has to be polled for afterwards.
func (r *redirect) turn(wake func()) { r.to.Store(&wake) }

func (r *redirect) wake() { (*r.to.Load())() }

// Open returns a session that has not begun.
func Open(side Side, cfg Config) *Opening {
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.ReadBuffer <= 0 {
		cfg.ReadBuffer = DefaultReadBuffer
	}
	return &Opening{side: side, cfg: cfg}
}

// Timeout is how long the negotiation may take.
func (o *Opening) Timeout() time.Duration { return o.cfg.Timeout }

// Begin posts receives on ep, takes what the peer has sent, and sends the hello that is due. notify, if not nil, is called when
// Advance may have something to do, under the rules of a wake function (see provider.Endpoint); nil is for Conclude.
// Begin owns ep: after an error it is closed. An error that the peer is to hear of is that of Conclude or Advance, as the
// connection has to be made for that. Another Begin drops what there was.
func (o *Opening) Begin(ep provider.Endpoint, notify func()) error {
	o.Drop()
	c := newConn(ep, o.cfg)
	c.mu.Lock() // until started, the core is ours alone
	o.err, o.wakes = nil, nil
	if notify != nil {
		o.wakes = redirectTo(notify)
		ep.OnWake(o.wakes.wake)
	} else {
		ep.OnWake(c.wake)
	}
	o.conn, o.n = c, negotiation{core: &c.core, side: o.side}
	c.pending = o.side == Listener
	c.markUnread()
	err := o.n.start()
	if err == nil {
		err = o.n.steps()
	}
	if err != nil && o.n.refused {
		o.err = err
		return nil
	}
	if err != nil {
		o.Drop()
	}
	return err
}

// Conclude waits for the end of the negotiation, for Config.Timeout at most. Errors are those of Negotiate.
func (o *Opening) Conclude(ctx context.Context) (*Conn, error) {
	if o.err == nil {
		o.err = o.n.run(ctx, o.conn, o.cfg.Timeout)
		o.conn.pending = false
	}
	return o.end()
}

// Advance goes on without waiting. It returns no Conn and no error where the peer's next step has not come yet. A Conn of
// the listening side is to be told when it is Accepted.
func (o *Opening) Advance() (*Conn, error) {
	for o.err == nil && !o.n.done {
		if o.err = o.n.steps(); o.err == nil && !o.n.done && !o.conn.ep.Arm(provider.WakeAny) {
			return nil, nil
		}
	}
	return o.end()
}

// end makes the Conn, or closes the endpoint.
func (o *Opening) end() (*Conn, error) {
	if o.err != nil {
		o.n.leave(o.conn)
		o.Drop()
		return nil, o.err
	}
	c := o.conn
	o.conn = nil
	if o.wakes != nil {
		o.wakes.turn(c.wake)
	}
	c.started()
	return c, nil
}

// Drop ends what has begun and is not concluded, and closes the endpoint.
func (o *Opening) Drop() {
	if o.conn != nil {
		o.conn.discard()
		o.conn = nil
	}
}
