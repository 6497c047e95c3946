// Package stack opens the providers that a list such as that of SANNET_PROVIDERS names.
package stack

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sansock/internal/inline"
	"sansock/provider"
)

// Env is the environment variable that has the list.
const Env = "SANNET_PROVIDERS"

// Openers has what opens the providers that are built in, by their names.
type Openers map[string]func() (provider.Provider, error)

// Asked is a provider that a list names.
type Asked struct {
	Name     string
	Provider provider.Provider // nil where it cannot be used
	Err      error             // why that is so
}

// Open opens the providers of a list such as "ofi,emu", each once. The empty list means defaults,
// and "none" no provider.
func (o Openers) Open(list string, defaults []string) (all []Asked) {
	names := defaults
	if list = strings.TrimSpace(list); list != "" {
		names = strings.Split(list, ",")
	}
	seen := make(map[string]bool)
	for _, name := range names {
		name = strings.TrimSpace(name)
		if name == "none" || name == "" || seen[name] {
			continue
		}
		seen[name] = true
		p, err := o.open(name)
		all = append(all, Asked{name, p, err})
	}
	return all
}

func (o Openers) open(name string) (provider.Provider, error) {
	open := o[name]
	if open == nil {
		have := strings.Join(slices.Sorted(maps.Keys(o)), ", ")
		return nil, fmt.Errorf("%s: no provider %q is built in, only %s", Env, name, have)
	}
	p, err := open()
	if err != nil {
		return nil, fmt.Errorf("provider %s: %w", name, err)
	}
	return p, nil
}

// Usable returns the providers that can be used, and why the others cannot.
func Usable(all []Asked) (ps []provider.Provider, err error) {
	var errs []error
	for _, a := range all {
		if a.Err != nil {
			errs = append(errs, a.Err)
			continue
		}
		ps = append(ps, a.Provider)
	}
	return ps, inline.Join(errs)
}
