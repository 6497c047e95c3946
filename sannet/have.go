package sannet

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"sansock/internal/hostcheck"
	providers "sansock/internal/stack"
)

// Provider tells whether a SAN is in use.
type Provider struct {
	Name  string // as in SANNET_PROVIDERS
	Err   error  // why it is not in use; nil: it is
	Limit error  // what it cannot do on this host; nil: nothing is known
}

// String describes the provider for people, such as "emu" or "ofi: not used: ...".
func (p Provider) String() string {
	switch {
	case p.Err != nil:
		return p.Name + ": not used: " + p.Err.Error()
	case p.Limit != nil:
		return p.Name + ": " + p.Limit.Error()
	}
	return p.Name
}

// Providers returns the SANs that Dial and Listen use, in order of preference, and then those
// that they do not use, with the reason. A program may log that when it starts. Providers are
// opened at first use, of which this is one.
func Providers() []Provider {
	known := slices.Clone(stackOf(nil).known)
	for i := range known {
		if known[i].Err == nil && known[i].Name == "emu" {
			if err := hostcheck.SharedMemory(); err != nil {
				known[i].Limit = fmt.Errorf("within this process alone: %w", err)
			}
		}
	}
	return known
}

var errNotAsked = errors.New("not asked for by " + providers.Env)

// others returns the providers that nobody has asked for.
func others(asked map[string]bool) (ps []Provider) {
	for _, name := range slices.Sorted(maps.Keys(openers)) {
		if !asked[name] {
			ps = append(ps, Provider{Name: name, Err: whyNot(name)})
		}
	}
	return ps
}

// whyNot returns why a provider that nobody has asked for is not used. What is not used by
// default is not built in, and says so.
func whyNot(name string) error {
	if slices.Contains(defaultProviders, name) {
		return errNotAsked
	}
	p, err := openers[name]()
	if err != nil {
		return err
	}
	p.Close()
	return errNotAsked
}
