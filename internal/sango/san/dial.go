//go:build linux

package san

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"

	"sansock/internal/probe"
	sanswitch "sansock/switch"
)

// Request is a connection to dial.
type Request struct {
	Local, Remote netip.AddrPort // Local may be unspecified
	Six           bool           // the socket would be one of IPv6

	// Control is the Control function of the dialer, nil if there is none.
	Control func(context.Context, syscall.RawConn) error

	// TCP dials over TCP. It is to call control, if not nil, with the first socket that it makes.
	TCP func(ctx context.Context, control func(context.Context, syscall.RawConn) error) (io.Closer, error)
}

// tcpLeg is a connection that Request.TCP has made, for the switch.
type tcpLeg struct {
	net.Conn // nil: nobody asks for more than to close it
	c        io.Closer
}

func (l tcpLeg) Close() error { return l.c.Close() }

// Dial makes the connection: over the SAN, or else over TCP, when it is what Request.TCP
// returned. Errors are bare, as package net has them below its *OpError.
func Dial(ctx context.Context, req Request) (*Conn, io.Closer, error) {
	p := process()
	tcp := func(ctx context.Context) (net.Conn, error) {
		c, err := req.TCP(ctx, req.Control)
		if err != nil {
			return nil, err
		}
		return tcpLeg{c: c}, nil
	}
	var keep *probe.KeepAlive
	if req.Control != nil {
		sock, ch, err := probe.Dial(req.Six, func(c syscall.RawConn) error { return req.Control(ctx, c) })
		if err != nil {
			return nil, nil, err
		}
		defer sock.Close()
		keep = ch.KeepAlive
		control := func(ctx context.Context, c syscall.RawConn) error {
			if ok, err := sock.Adopt(c); ok {
				return err
			}
			return req.Control(ctx, c)
		}
		tcp = func(ctx context.Context) (net.Conn, error) {
			c, err := req.TCP(ctx, control)
			if err != nil {
				return nil, err
			}
			return tcpLeg{c: c}, nil
		}
		if ch.Option != "" {
			return p.overTCP(ctx, req, tcp, ch.Option)
		}
	}
	res, err := p.sw.DialAddr(ctx, req.Local, req.Remote, tcp)
	if err != nil {
		return nil, nil, err
	}
	if res.Session == nil {
		p.note("dial", req.Local, req.Remote, res.Route)
		return nil, res.Conn.(tcpLeg).c, nil
	}
	c := newConn(res, keep)
	p.note("dial", c.Local, c.Remote, res.Route)
	return c, nil, nil
}

// overTCP dials a connection of which a Control function has set an option that the SAN does not
// have.
func (p *state) overTCP(ctx context.Context, req Request, tcp func(context.Context) (net.Conn, error),
	option string) (*Conn, io.Closer, error) {
	c, err := tcp(ctx)
	if err != nil {
		return nil, nil, err
	}
	why := sanswitch.Route{Path: sanswitch.PathTCP, Reason: sanswitch.ReasonControl, Err: errors.New(option)}
	p.note("dial", req.Local, req.Remote, why)
	return nil, c.(tcpLeg).c, nil
}
