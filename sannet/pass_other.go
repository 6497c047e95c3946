//go:build !unix

package sannet

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// SendConn needs a system that passes sockets. Conn.Handover and Resume do without.
func SendConn(ctx context.Context, u *net.UnixConn, c net.Conn) error {
	return fmt.Errorf("sannet: passing connections: %w", errors.ErrUnsupported)
}

// ReceiveConn needs a system that passes sockets. Conn.Handover and Resume do without.
func ReceiveConn(ctx context.Context, u *net.UnixConn) (net.Conn, error) {
	return new(Dialer).ReceiveConn(ctx, u)
}

// ReceiveConn is the function ReceiveConn.
func (d *Dialer) ReceiveConn(ctx context.Context, u *net.UnixConn) (net.Conn, error) {
	return nil, fmt.Errorf("sannet: passing connections: %w", errors.ErrUnsupported)
}
