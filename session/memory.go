package session

import (
	"sansock/provider"
	"sansock/session/regcache"
)

// registrations are those of the application's memory that are kept.
func (l *line) registrations() *regcache.Cache {
	if l.regs == nil {
		l.regs = regcache.New(l.ep, l.cache)
	}
	return l.regs
}

// registerLocal makes memory of the application usable by the device, where that is needed. The peer cannot reach it,
// so that the registration may be kept for the next time. It is given back with regs.Put.
func (l *line) registerLocal(b []byte) (provider.Handle, error) {
	if !l.attr.LocalRegistration {
		return 0, nil
	}
	return l.registrations().Get(b)
}

// expose lets the peer reach memory of the application. Registrations that are only kept, by any connection, are given
// up for that.
func (l *line) expose(b []byte, rights provider.Rights) (provider.Region, error) {
	r, err := l.ep.Expose(b, rights)
	s := provider.StatusOf(err)
	if (s == provider.StatusLimit || s == provider.StatusNoMemory) && l.attr.LocalRegistration &&
		l.registrations().Relieve(len(b)) {
		r, err = l.ep.Expose(b, rights)
	}
	return r, err
}

// conceal ends a registration of the application's memory. Where the provider fails, closing the endpoint is the
// other way to take the memory out of reach.
func (l *line) conceal(h provider.Handle) {
	if err := l.ep.Deregister(h); err != nil && l.state != lineEnded {
		if l.fault == nil {
			l.fault = err
		}
		l.state, l.fast = lineEnded, false
	}
}
