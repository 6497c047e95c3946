package sannet

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"sansock/session"
)

// Handover ends the connection here so that it goes on elsewhere: in another process of this host, as a rule, to which
// the program brings the state that it returns, and which calls Resume. The peer notices a pause, and nothing else.
// SendConn does all of that, for connections over TCP as well.
//
// Unread data, and what was written and has not left, is part of the state. So are addresses, SetLinger, SetReadBuffer
// and keep-alive, but not deadlines. The connection is closed when Handover returns; calls that wait on it end with
// net.ErrClosed, and tell exactly how many bytes were read or will arrive. A program that wants to lose nothing calls
// it while no Read is under way that might return data.
//
// After an error the connection is as it was. Errors are that of ctx, context.DeadlineExceeded where the peer has not
// come to rest within 10 s, errors.ErrUnsupported where it, or the SAN, cannot wait for a new end, and those of Write.
// The peer waits for the new end for 30 s, and then its connection is reset. The state can be used once, and is a
// secret: it gives away the connection.
func (c *Conn) Handover(ctx context.Context) (state []byte, err error) {
	if !c.ok() {
		return nil, syscall.EINVAL
	}
	if state, err = c.leave(ctx); err == nil {
		c.closed.Store(true)
	}
	return state, err
}

// leave is Handover of a Conn that may come back.
func (c *Conn) leave(ctx context.Context) (state []byte, err error) {
	c.mu.Lock()
	k := c.keepAlive
	c.mu.Unlock()
	s, err := c.s.Load().Handover(ctx)
	if err != nil {
		return nil, c.opError("handover", err)
	}
	return handover{network: c.network, provider: c.route.Provider, keepAlive: k, session: s}.append(nil), nil
}

// back has c go on here after leave, as nobody else will. It returns the error of the hand-over, which failed for cause: a
// lostError where c could not come back.
//
// A token is good for one: if the other process has gone on with the connection after all, or does so later, one of the two fails.
func (c *Conn) back(state []byte, cause error) error {
	ctx, cancel := context.WithTimeout(context.Background(), backTimeout)
	defer cancel()
	n, err := (&Dialer{Switch: c.sw}).Resume(ctx, state)
	if err != nil {
		c.closed.Store(true)
		return c.opError("handover", &lostError{cause})
	}
	n.cleanup.Stop()
	s := n.s.Load()
	s.TakeDeadlines(c.s.Load())
	c.takes(s)
	if c.closed.Load() { // Close came meanwhile. It saw the session that has left, or will see the new one
		n.Close()
		return c.opError("handover", &lostError{cause})
	}
	return c.opError("handover", cause)
}

// backTimeout bounds how long a hand-over that has failed may take to be undone. The peer waits for longer.
const backTimeout = 5 * time.Second

// lostError is cause for a connection that it was the end of.
type lostError struct{ cause error }

func (e *lostError) Error() string        { return e.cause.Error() + ": the connection is lost" }
func (e *lostError) Unwrap() error        { return e.cause }
func (e *lostError) Is(target error) bool { return target == net.ErrClosed }

// Resume goes on with a connection that Conn.Handover has ended. It can be called in any process that reaches the peer
// over the same SAN as before: over the emulated one, those of the same user on this host. An error that is
// syscall.ECONNRESET means that the connection is lost; after any other, as long as the peer waits, the state can be
// tried again. It is a *net.OpError with Op "resume" and, unless the state is malformed, the addresses.
func Resume(ctx context.Context, state []byte) (*Conn, error) { return new(Dialer).Resume(ctx, state) }

// Resume is the function Resume, on the SANs of d.Switch. Other fields of d are of no concern.
func (d *Dialer) Resume(ctx context.Context, state []byte) (*Conn, error) {
	h, err := parseHandover(state)
	if err != nil {
		return nil, &net.OpError{Op: "resume", Net: "tcp", Err: err}
	}
	s, err := session.ParseState(h.session)
	if err != nil {
		return nil, &net.OpError{Op: "resume", Net: h.network, Err: err}
	}
	st := stackOf(d.Switch)
	r, err := st.Switch.Resume(ctx, h.provider, h.session)
	if err != nil {
		return nil, &net.OpError{Op: "resume", Net: h.network, Source: tcpAddr(s.LocalAddr()), Addr: tcpAddr(s.RemoteAddr()), Err: err}
	}
	c := newConn(h.network, r.Session, r.Route)
	c.sw = st.Switch
	if h.keepAlive.Enable {
		c.SetKeepAliveConfig(h.keepAlive)
	} else {
		c.mu.Lock()
		c.keepAlive = h.keepAlive
		c.mu.Unlock()
	}
	return c, nil
}

// handover is what Handover passes to Resume.
type handover struct {
	network, provider string
	keepAlive         net.KeepAliveConfig
	session           []byte
}

const handoverVersion = 1

var errHandover = errors.New("malformed state of a handed over connection")

func (h handover) append(b []byte) []byte {
	le := binary.LittleEndian
	b = append(b, handoverVersion)
	for _, s := range []string{h.network, h.provider} {
		b = append(append(b, uint8(len(s))), s...)
	}
	enable := uint8(0)
	if h.keepAlive.Enable {
		enable = 1
	}
	b = append(b, enable)
	for _, n := range []int64{int64(h.keepAlive.Idle), int64(h.keepAlive.Interval), int64(h.keepAlive.Count)} {
		b = le.AppendUint64(b, uint64(n))
	}
	return append(b, h.session...)
}

func parseHandover(b []byte) (h handover, err error) {
	le := binary.LittleEndian
	if len(b) == 0 || b[0] != handoverVersion {
		return h, errHandover
	}
	b = b[1:]
	for _, s := range []*string{&h.network, &h.provider} {
		if len(b) == 0 || len(b) < 1+int(b[0]) {
			return h, errHandover
		}
		*s = string(b[1 : 1+int(b[0])])
		b = b[1+len(*s):]
	}
	if len(b) < 25 || !isStream(h.network) {
		return h, errHandover
	}
	h.keepAlive.Enable = b[0] != 0
	h.keepAlive.Idle = time.Duration(le.Uint64(b[1:]))
	h.keepAlive.Interval = time.Duration(le.Uint64(b[9:]))
	h.keepAlive.Count = int(int64(le.Uint64(b[17:])))
	h.session = b[25:]
	return h, nil
}

// TCPFile returns a copy of the listener's TCP socket, for a process that goes on listening with FileListener. Closing one
// of them does not affect the other. It fails where the listener takes no TCP connections.
func (l *Listener) TCPFile() (*os.File, error) {
	if !l.ok() {
		return nil, syscall.EINVAL
	}
	ln, ok := l.l.TCP().(*net.TCPListener)
	if !ok {
		return nil, &net.OpError{Op: "file", Net: l.network, Addr: l.Addr(), Err: errors.ErrUnsupported}
	}
	return ln.File()
}

// FileListener listens with a copy of the TCP socket f, which may be closed afterwards, and at its address on every SAN
// that serves it: the other end of Listener.TCPFile. The process that listened before has to have called Drain or
// Close; where it has not, connections come over TCP alone.
func FileListener(f *os.File) (net.Listener, error) { return new(ListenConfig).FileListener(f) }

// FileListener is the function FileListener with the options of lc, of which Control does not matter.
func (lc *ListenConfig) FileListener(f *os.File) (net.Listener, error) {
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	st := stackOf(lc.Switch)
	l := st.Switch.Adopt(ln)
	return lc.listener(l, st, "tcp"), nil
}

// Drain stops listening, but for the connections that have arrived: Accept still returns these, and then net.ErrClosed.
// On a SAN dialers are sent to TCP from now on, whose socket may live on in another process, see TCPFile. What the kernel
// has not passed on from that socket yet is left to the other process; where there is none, it is reset, as by Close, and
// nothing else waits where the listener takes TCP alone. Draining again does nothing. Close ends it at once.
func (l *Listener) Drain() error {
	if !l.ok() {
		return syscall.EINVAL
	}
	return l.l.Drain()
}
