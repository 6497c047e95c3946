package providertest

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"

	"sansock/provider"
)

var providerRules = []rule{
	{Rule{"provider/name", "The name is short, lower-case and can be written in SANNET_PROVIDERS."}, provesName},
	{Rule{"provider/attributes", "Attributes are within their bounds, an endpoint's within its provider's, and never change."},
		provesAttributes},
	{Rule{"provider/prefixes", "Listen takes every address of Prefixes, and one of the networks reaches the listener."},
		provesPrefixes},
	{Rule{"provider/close", "Close ends the listeners, and leaves the endpoints alive."}, provesProviderClose},
}

func provesName(x *rig) {
	for _, p := range []provider.Provider{x.dialer, x.listener} {
		name := p.Name()
		if name == "" || len(name) > 32 || strings.ToLower(name) != name || strings.ContainsAny(name, ", \t\n") {
			x.errorf("the name %q is not short and lower-case", name)
		}
		if again := p.Name(); again != name {
			x.errorf("the name %q has become %q", name, again)
		}
	}
}

func (x *rig) saneAttributes(whose string, a provider.Attributes) {
	for _, v := range []struct {
		name     string
		got, min int
	}{
		{"MaxMessage", a.MaxMessage, provider.MaxFirstMessage},
		{"MaxRDMA", a.MaxRDMA, 1},
		{"RDMAThreshold", a.RDMAThreshold, 1},
		{"MaxInline", a.MaxInline, 0},
		{"MaxRecvs", a.MaxRecvs, 1},
		{"MaxSends", a.MaxSends, 1},
		{"MaxRDMAs", a.MaxRDMAs, 1},
		{"Buffered", a.Buffered, 0},
	} {
		if v.got < v.min {
			x.errorf("%s: %s is %d, below %d", whose, v.name, v.got, v.min)
		}
	}
	if a.MaxInline > a.MaxMessage {
		x.errorf("%s: MaxInline is %d, MaxMessage only %d", whose, a.MaxInline, a.MaxMessage)
	}
}

func provesAttributes(x *rig) {
	of := map[provider.Provider]provider.Attributes{
		x.dialer: x.dialer.Attributes(), x.listener: x.listener.Attributes(),
	}
	for p, a := range of {
		x.saneAttributes(p.Name(), a)
	}
	a, b := x.connect()
	a.talk()
	for _, e := range []*end{a, b} {
		x.saneAttributes(e.name, e.attr)
		most := of[e.prov]
		for _, v := range []struct {
			name      string
			got, most int
		}{
			{"MaxMessage", e.attr.MaxMessage, most.MaxMessage},
			{"MaxRDMA", e.attr.MaxRDMA, most.MaxRDMA},
			{"MaxInline", e.attr.MaxInline, most.MaxInline},
			{"MaxRecvs", e.attr.MaxRecvs, most.MaxRecvs},
			{"MaxSends", e.attr.MaxSends, most.MaxSends},
			{"MaxRDMAs", e.attr.MaxRDMAs, most.MaxRDMAs},
		} {
			if v.got > v.most {
				x.errorf("%s: %s is %d, more than the provider's %d", e.name, v.name, v.got, v.most)
			}
		}
		if e.attr.RDMARead && !most.RDMARead || e.attr.RDMAReadable && !most.RDMAReadable {
			x.errorf("%s: RDMA read where the provider has none", e.name)
		}
		e.close()
		if now := e.ep.Attributes(); now != e.attr {
			x.errorf("%s: attributes have changed from %+v to %+v", e.name, e.attr, now)
		}
	}
	for p, before := range of {
		if now := p.Attributes(); now != before {
			x.errorf("%s: attributes have changed from %+v to %+v", p.Name(), before, now)
		}
	}
}

// maxPrefixes bounds how many addresses are tried.
const maxPrefixes = 8

func provesPrefixes(x *rig) {
	ps, err := x.listener.Prefixes()
	if err != nil || len(ps) == 0 {
		x.fatalf("the listening provider's Prefixes: %v, %v", ps, err)
	}
	for _, p := range ps[:min(len(ps), maxPrefixes)] {
		if !p.IsValid() {
			x.errorf("%v is no valid prefix", p)
			continue
		}
		l, err := x.listener.Listen(netip.AddrPortFrom(p.Addr(), 0), 1)
		if err != nil {
			x.errorf("Listen at %v, the address of prefix %v: %v", p.Addr(), p, err)
			continue
		}
		l.Close()
	}
	if ps, err = x.dialer.Prefixes(); err != nil {
		x.fatalf("the dialing provider's Prefixes: %v", err)
	}
	target := x.listen(1).Addr().Addr()
	for _, p := range ps {
		if p.Masked().Contains(target.WithZone("")) {
			return
		}
	}
	x.errorf("none of the prefixes %v reaches %v", ps, target)
}

func provesProviderClose(x *rig) {
	a, b := x.connect()
	idle := x.listen(1)
	accepting := make(chan error, 1)
	x.loose.Go(func() {
		defer x.rescue()
		_, err := idle.Accept()
		accepting <- err
	})
	x.closeProviders()
	x.bounded("Listener.Accept", func() {
		if err := <-accepting; !errors.Is(err, net.ErrClosed) {
			x.errorf("Accept at a closed provider: %v", err)
		}
	})
	if l, err := x.listener.Listen(x.Addr, 1); err == nil {
		l.Close()
		x.errorf("a closed provider listens")
	}
	x.bounded("Dial", func() {
		ctx, cancel := context.WithTimeout(x.ctx, x.Wait/2)
		defer cancel()
		if ep, err := x.dialer.Dial(ctx, netip.AddrPort{}, idle.Addr()); err == nil {
			ep.Close()
			x.errorf("a closed provider dials")
		}
	})
	a.talk()
	b.close()
	a.gone()
}
