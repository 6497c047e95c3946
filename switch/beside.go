package sanswitch

import (
	"context"
	"net"

	"sansock/internal/beside"
)

// listenBeside listens on the SANs for what ln has on TCP. A provider that has to prove that it
// listens where TCP arrives finds the socket meanwhile.
func (s *Switch) listenBeside(
	ctx context.Context, network string, ln net.Listener,
) (sans []sanListener, why Reason, err error) {
	addr := ln.Addr().(*net.TCPAddr).AddrPort()
	if l, ok := ln.(*net.TCPListener); ok {
		if c, err := l.SyscallConn(); err == nil {
			defer beside.Put(addr, c)()
		}
	}
	return s.listenSANs(ctx, network, addr)
}
