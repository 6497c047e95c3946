// This file is added to package net by sango, see docs/sango.md of the library.

package net

import (
	"context"
	sangohost "internal/sango/net"
	"net/netip"
)

// What the library needs of this package.
func init() {
	sangohost.Host.ListenUnix = func(network, name string) (sangohost.UnixListening, error) {
		l, err := ListenUnix(network, &UnixAddr{Net: network, Name: name})
		if err != nil {
			return nil, err
		}
		return sangoUnixListener{l}, nil
	}
	sangohost.Host.DialUnix = func(ctx context.Context, network, name string) (sangohost.UnixSocket, error) {
		c, err := new(Dialer).DialContext(ctx, network, name)
		if err != nil {
			return nil, err
		}
		return sangoUnix{c.(*UnixConn)}, nil
	}
	sangohost.Host.InterfaceAddrs = sangoInterfaceAddrs
}

func sangoInterfaceAddrs() (ps []netip.Prefix, err error) {
	addrs, err := InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				bits, _ := n.Mask.Size()
				ps = append(ps, netip.PrefixFrom(ip, bits))
			}
		}
	}
	return ps, err
}

type sangoUnix struct{ *UnixConn }

func (c sangoUnix) ReadMsg(b, oob []byte) (n, oobn, flags int, err error) {
	n, oobn, flags, _, err = c.ReadMsgUnix(b, oob)
	return n, oobn, flags, err
}

func (c sangoUnix) WriteMsg(b, oob []byte) (n, oobn int, err error) {
	return c.WriteMsgUnix(b, oob, nil)
}

type sangoUnixListener struct{ *UnixListener }

func (l sangoUnixListener) AcceptSocket() (sangohost.UnixSocket, error) {
	c, err := l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	return sangoUnix{c}, nil
}
