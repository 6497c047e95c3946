package sanswitch

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
)

// localError returns the error with which net refuses d.LocalAddr for a dial to dst, nil where net
// takes it. tcp is the network's name in net.
//
// Only net, and the kernel below it, know what they refuse: an address that is none, a port that is
// taken or needs a privilege. So net is asked. It binds to the local address before it tries to
// connect, and nothing can connect to a multicast address. Which addresses there are on the SAN is
// for the provider to say.
func localError(d *net.Dialer, network, tcp string, dst destination) error {
	if d.LocalAddr == nil {
		return nil
	}
	nowhere := "224.0.0.1:9"
	if !dst.addr.Addr().Is4() {
		nowhere = "[ff02::1]:9"
	}
	c, err := (&net.Dialer{LocalAddr: d.LocalAddr}).DialContext(context.Background(), tcp, nowhere)
	if err == nil {
		c.Close()
		return nil
	}
	var call *os.SyscallError
	bound := errors.As(err, &call) && strings.HasPrefix(call.Syscall, "connect")
	if bound || errors.Is(err, syscall.EADDRNOTAVAIL) {
		return nil
	}
	var oe *net.OpError
	if !errors.As(err, &oe) {
		return err
	}
	refusal := *oe
	refusal.Net = network
	if refusal.Addr != nil {
		refusal.Addr = dst.shown
	}
	return &refusal
}

// hasLocalIP reports whether d.LocalAddr has an IP address, and not only a port.
func hasLocalIP(d *net.Dialer) bool {
	la, _ := d.LocalAddr.(*net.TCPAddr)
	return la != nil && la.IP != nil
}
