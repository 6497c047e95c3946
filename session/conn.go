package session

import (
	"context"
	"net/netip"
	"time"

	"sansock/provider"
)

// SKELETON: signatures only, implementation follows.

type Side uint8

const (
	Dialer Side = iota
	Listener
)

type Config struct {
	Timeout    time.Duration // bound on negotiation; 0: DefaultTimeout
	ReadBuffer int           // receive-buffer limit in bytes; 0: DefaultReadBuffer
}

// Conn is one end of a negotiated session. Errors are bare: io.EOF, os.ErrDeadlineExceeded, net.ErrClosed,
// syscall.ECONNRESET, EPIPE, ETIMEDOUT (wrapping into net.OpError is sannet's).
type Conn struct{}

// Negotiate turns a connected endpoint into a session. It owns ep from the call on: after an error ep is closed. The
// dialing side returns once the peer has agreed; the listening side once the dialer has confirmed, so that a dialer which
// fell back to TCP leaves nothing behind.
func Negotiate(ctx context.Context, ep provider.Endpoint, side Side, cfg Config) (*Conn, error) {
	panic("not yet")
}

// Errors of Negotiate (use errors.Is); others are ctx's error, or a provider.Status / *provider.Error.
//   ErrTimeout   no answer in Config.Timeout (also os.ErrDeadlineExceeded)
//   ErrVersion   no common protocol version
//   ErrProtocol  the peer's bytes are not this protocol
//   ErrMemory    message regions could not be had
//   *RefusedError{Code uint8} the peer's session layer declined (codes: RefusedMemory, RefusedVersion, RefusedBusy)

func (c *Conn) Read(p []byte) (int, error)                   { panic("not yet") }
func (c *Conn) Write(p []byte) (int, error)                  { panic("not yet") }
func (c *Conn) Close() error                                 { panic("not yet") }
func (c *Conn) CloseRead() error                             { panic("not yet") }
func (c *Conn) CloseWrite() error                            { panic("not yet") }
func (c *Conn) SetDeadline(t time.Time) error                { panic("not yet") }
func (c *Conn) SetReadDeadline(t time.Time) error            { panic("not yet") }
func (c *Conn) SetWriteDeadline(t time.Time) error           { panic("not yet") }
func (c *Conn) SetReadBuffer(n int) error                    { panic("not yet") }
func (c *Conn) SetWriteBuffer(n int) error                   { panic("not yet") }
func (c *Conn) SetLinger(sec int) error                      { panic("not yet") }
func (c *Conn) SetKeepAlive(idle, interval time.Duration, count int) error { panic("not yet") } // 0 idle: off
func (c *Conn) LocalAddr() netip.AddrPort                    { panic("not yet") }
func (c *Conn) RemoteAddr() netip.AddrPort                   { panic("not yet") }
func (c *Conn) Stats() Stats                                 { panic("not yet") }

// Stats will hold: bytes by copy/RDMA each way, messages, transfers per mode, registrations, fallbacks by cause,
// threshold, region sizes.
type Stats struct{}
