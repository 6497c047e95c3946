package emu

import (
	"context"
	"errors"
	"net/netip"

	"sansock/emu/shm"
	"sansock/provider"
)

// canCross reports whether connections of p may leave the process. They have the attributes of
// shared memory, so knobs that ask for something else keep a provider within the process.
func (p *Provider) canCross(c *Config) bool {
	a := shm.Attributes()
	return shm.Supported && p.fabric.shared && !c.SameProcess && !p.link.shaped() && p.slow == Completions{} &&
		!p.proxy.limited && p.appends && p.attr.RDMARead && !p.attr.LocalRegistration && p.attr.MaxMessage >= a.MaxMessage &&
		p.attr.MaxInline >= a.MaxInline && p.attr.MaxRDMA >= a.MaxRDMA && p.attr.MaxRecvs >= a.MaxRecvs &&
		p.attr.MaxSends >= a.MaxSends && p.attr.MaxRDMAs >= a.MaxRDMAs
}

// cross dials a listener of another process.
func (p *Provider) cross(ctx context.Context, local, remote netip.AddrPort, begin func(provider.Endpoint) error) (provider.Endpoint, error) {
	if p.node == nil {
		return nil, p.failure("dial", provider.StatusNoListener)
	}
	return p.node.DialEarly(ctx, local, remote, begin)
}

// bind enters l in the fabric, and makes it known to other processes. A port that another process
// of this fabric has is taken; if it cannot be made known for another reason, l serves this
// process.
func (p *Provider) bind(l *listener) error {
	if p.node == nil {
		return p.fabric.bind(l)
	}
	addr := l.addr
	for range bindTries {
		l.addr = addr
		if err := p.fabric.bind(l); err != nil {
			return err
		}
		r, err := p.node.Bind(l.addr, foreigners{l})
		if err == nil {
			l.rendezvous = r
			return nil
		}
		if !errors.Is(err, provider.StatusAddrInUse) {
			return nil
		}
		p.fabric.unbind(l)
		if addr.Port() != 0 {
			break
		}
	}
	return provider.StatusAddrInUse
}

// bindTries bounds how many ports of other processes are met when a port is chosen.
const bindTries = 1000

// pending is a connection request in the queue of a listener.
type pending interface {
	provider.EarlyRequest
	refuse(reason []byte) bool
}

// foreign is a request of another process.
type foreign struct{ *shm.Request }

func (f foreign) refuse(reason []byte) bool { return f.Reject(reason) == nil }

// foreigners takes the requests of other processes to a listener.
type foreigners struct{ l *listener }

// Requested implements shm.Acceptor.
func (f foreigners) Requested(r *shm.Request) error {
	if f.l.prov.fabric.connected(r.RemoteAddr(), r.LocalAddr()) {
		return provider.StatusAddrInUse
	}
	return f.l.enqueue(foreign{r})
}

// Withdrawn implements shm.Acceptor.
func (f foreigners) Withdrawn(r *shm.Request) { f.l.withdraw(foreign{r}) }
