// Package stack opens the providers that a list such as that of SANNET_PROVIDERS names.
package stack

import (
	"fmt"
	"slices"
	"strings"

	"sansock/internal/inline"
	"sansock/provider"
)

// Opener opens a provider.
type Opener func() (provider.Provider, error)

// Open opens the providers of a list such as "ofi,emu", leaving out those that fail: err says
// why. The empty list means names, and "none" no provider.
func Open(list string, names []string, openers map[string]Opener) (ps []provider.Provider, err error) {
	if list = strings.TrimSpace(list); list != "" {
		names = strings.Split(list, ",")
	}
	var (
		errs []error
		seen []string
	)
	for _, name := range names {
		name = strings.TrimSpace(name)
		if name == "none" || name == "" || slices.Contains(seen, name) {
			continue
		}
		seen = append(seen, name)
		open := openers[name]
		if open == nil {
			errs = append(errs, fmt.Errorf("SANNET_PROVIDERS: no provider %q is built in", name))
			continue
		}
		p, err := open()
		if err != nil {
			errs = append(errs, fmt.Errorf("provider %s: %w", name, err))
			continue
		}
		ps = append(ps, p)
	}
	return ps, inline.Join(errs)
}
