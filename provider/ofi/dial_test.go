//go:build ofi && cgo && linux

package ofi

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sansock/provider"
)

// TestDialContext has a dial end with its context at every stage, and nothing of the others is hurt.
func TestDialContext(t *testing.T) {
	p := opened(t)
	l, err := p.Listen(testAddr, 8)
	require.NoError(t, err)
	defer l.Close()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.Dial(ended, netip.AddrPort{}, l.Addr())
	require.ErrorIs(t, err, context.Canceled)

	// Nobody accepts yet.
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err = p.Dial(ctx, netip.AddrPort{}, l.Addr())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, provider.StatusTimeout, provider.StatusOf(err))

	ctx, cancel = context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := p.Dial(ctx, netip.AddrPort{}, l.Addr())
		failed <- err
	}()
	r, err := l.Accept()
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	if ep, err := r.Accept(t.Context()); err == nil {
		require.Equal(t, provider.OpDisconnect, next(t, ep).Op)
		ep.Close()
	}
	a, b := connected(t, p)
	require.Equal(t, a.LocalAddr(), b.RemoteAddr())
}

// TestRequestOutlivesListener answers requests after the listener, and the provider, were closed.
func TestRequestOutlivesListener(t *testing.T) {
	p := opened(t)
	l, err := p.Listen(testAddr, 8)
	require.NoError(t, err)
	type result struct {
		ep  provider.Endpoint
		err error
	}
	dialed := make(chan result, 2)
	var requests []provider.Request
	for range 2 {
		go func() {
			ep, err := p.Dial(t.Context(), netip.AddrPort{}, l.Addr())
			dialed <- result{ep, err}
		}()
		r, err := l.Accept()
		require.NoError(t, err)
		requests = append(requests, r)
	}
	require.NoError(t, l.Close())
	require.NoError(t, requests[0].Reject([]byte("late")))
	d := <-dialed
	var pe *provider.Error
	require.ErrorAs(t, d.err, &pe)
	require.Equal(t, provider.StatusRefused, pe.Status)
	require.Equal(t, "late", string(pe.Reason))

	b, err := requests[1].Accept(t.Context())
	require.NoError(t, err)
	d = <-dialed
	require.NoError(t, d.err)
	require.NoError(t, p.Close())
	in, err := b.Allocate(8)
	require.NoError(t, err)
	require.NoError(t, b.PostRecv(provider.Recv{Context: 1, Buffer: in.Segment(0, 8)}))
	require.NoError(t, d.ep.PostSend(provider.Send{Inline: [2][]byte{[]byte("hi")}}))
	require.Equal(t, provider.Completion{Context: 1, Op: provider.OpRecv, Len: 2}, next(t, b))
	d.ep.Close()
	b.Close()
	require.NoError(t, b.Deregister(in.Handle))
}

// TestStrangers has plain TCP clients come to the port that carries a listener's: they are not served, and nobody
// else is harmed.
func TestStrangers(t *testing.T) {
	if testFabric != fabricTCP {
		t.Skip("the fabric does not use TCP")
	}
	p := opened(t)
	l, err := p.Listen(testAddr, 8)
	require.NoError(t, err)
	defer l.Close()
	port := netip.AddrPortFrom(l.Addr().Addr(), carrier(l.Addr().Port()))
	for _, say := range []string{"", "G", "GET / HTTP/1.1\r\n\r\n", "\x00\x00\x00"} {
		c, err := net.Dial("tcp", port.String())
		require.NoError(t, err)
		_, err = c.Write([]byte(say))
		require.NoError(t, err)
		if say == "" {
			defer c.Close() // silent, and stays
			continue
		}
		require.NoError(t, c.(*net.TCPConn).CloseWrite())
		c.SetReadDeadline(time.Now().Add(20 * time.Second))
		_, err = io.ReadAll(c)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		c.Close()
	}
	accepted := make(chan provider.Endpoint, 1)
	go func() {
		defer close(accepted)
		r, err := l.Accept()
		if err != nil {
			return
		}
		if ep, err := r.Accept(context.Background()); err == nil {
			accepted <- ep
		}
	}()
	a, err := p.Dial(t.Context(), netip.AddrPort{}, l.Addr())
	require.NoError(t, err)
	a.Close()
	b := <-accepted
	require.NotNil(t, b)
	b.Close()
}

// TestForeignListener dials ports where something listens that is not of this package, or not at that port.
func TestForeignListener(t *testing.T) {
	if testFabric != fabricTCP {
		t.Skip("the fabric does not use TCP")
	}
	p := opened(t)
	// Ports 32768 to 33791 share their carriers with those 1024 above.
	var (
		l   provider.Listener
		err error
	)
	for port := uint16(33792); port < 34816; port++ {
		l, err = p.Listen(netip.AddrPortFrom(testAddr.Addr(), port), 1)
		if !errors.Is(err, provider.StatusAddrInUse) {
			break
		}
	}
	require.NoError(t, err)
	other := netip.AddrPortFrom(l.Addr().Addr(), l.Addr().Port()-1024)
	require.Equal(t, carrier(l.Addr().Port()), carrier(other.Port()))
	_, err = p.Dial(t.Context(), netip.AddrPort{}, other)
	require.Equal(t, provider.StatusNoListener, provider.StatusOf(err))
	l.Close()

	for _, says := range []string{"", "220 mail.example ESMTP\r\n"} {
		var ln net.Listener
		port := l.Addr().Port()
		for ; ; port++ {
			if ln, err = net.Listen("tcp", netip.AddrPortFrom(testAddr.Addr(), carrier(port)).String()); err == nil {
				break
			}
		}
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				io.WriteString(c, says)
				if says != "" {
					io.Copy(io.Discard, c)
				}
				c.Close()
			}
		}()
		_, err = p.Dial(t.Context(), netip.AddrPort{}, netip.AddrPortFrom(testAddr.Addr(), port))
		var pe *provider.Error
		require.ErrorAs(t, err, &pe)
		require.Equal(t, provider.StatusNoListener, pe.Status, "%q: %v", says, err)
		ln.Close()
	}
}

func TestSelection(t *testing.T) {
	_, err := Open(Config{Fabric: "sockets"})
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "sockets")
	_, err = Open(Config{Fabric: testFabric, Device: "nosuchdevice"})
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "nosuchdevice")
	if testFabric == fabricTCP {
		t.Setenv("SANNET_OFI_FABRIC", "")
		if p, err := Open(Config{}); err == nil { // this host has a device
			require.NotEqual(t, fabricTCP, p.(*Provider).kind)
			p.Close()
		} else {
			require.ErrorIs(t, err, errors.ErrUnsupported)
			require.ErrorContains(t, err, "verbs")
			require.ErrorContains(t, err, "; the tcp fabric has to be asked for")
			require.NotContains(t, err.Error(), "\n")
		}
		t.Setenv("SANNET_OFI_FABRIC", "tcp")
	}
	t.Setenv("SANNET_OFI_DEVICE", "lo")
	p, err := Open(Config{})
	if testFabric == fabricTCP {
		require.NoError(t, err)
		for _, i := range p.(*Provider).infos {
			require.Equal(t, "lo", i.domain)
		}
		p.Close()
	} else {
		require.ErrorIs(t, err, errors.ErrUnsupported)
	}
}

func TestForeignAddress(t *testing.T) {
	p := opened(t)
	_, err := p.Dial(t.Context(), netip.MustParseAddrPort("203.0.113.9:0"), netip.AddrPortFrom(testAddr.Addr(), 80))
	require.Equal(t, provider.StatusAddrNotAvail, provider.StatusOf(err))
	_, err = p.Listen(netip.MustParseAddrPort("203.0.113.9:0"), 1)
	require.Equal(t, provider.StatusAddrNotAvail, provider.StatusOf(err))
}
