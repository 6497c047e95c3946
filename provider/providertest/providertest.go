// Package providertest proves that a provider keeps the promises of package provider.
//
// Every promise is a rule with a name. Run turns the rules into subtests; Check runs them and returns the violations, for
// those who expect some. A rule opens its own providers and connections, drives both ends, and judges by what a user
// of the provider can see: completions, errors, and above all memory. What hardware is free to do, no
// rule objects to: an access that is refused may cost the connection, a refused write may complete as if it had
// succeeded, and every completion may come late.
//
// While a rule runs, whatever it does is checked against the promises that hold always: a posted operation completes exactly
// once, with its context and kind, an OpDisconnect is the last completion, nothing follows a Close, and no byte beside
// the memory of an operation changes.
package providertest

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"sansock/provider"
)

// Config says what to test, and how patiently.
type Config struct {
	// Open opens the provider that dials and the one that listens. They may be the same one, returned twice. Open is called
	// for every rule, and what it returns is closed at the end of the rule.
	Open func() (dialer, listener provider.Provider, err error)

	// Addr is where the listening provider listens, with port 0. Zero: 127.0.0.1:0.
	Addr netip.AddrPort

	// Memory returns n bytes, at least 1, that an application may register with p: for providers that cannot use
	// the memory of Go, or whose other end is in another process. It is in use until the next Open. nil: make.
	Memory func(p provider.Provider, n int) []byte

	// Wait is how long a rule waits for something that has to happen. 0: 10 seconds.
	Wait time.Duration

	// Quiet is how long a rule watches that something does not happen, where nothing else proves it. 0: 20 milliseconds.
	Quiet time.Duration

	// Limit is how long a rule may take altogether. 0: 2 minutes.
	Limit time.Duration

	// Rounds is how often rules that look for races repeat what they do. 0: 400.
	Rounds int

	// Waive names the rules that the provider does not keep, each with the reason. They are skipped. A name that is not
	// a rule's is a violation.
	Waive map[string]string
}

// Violation is a promise that was broken.
type Violation struct {
	Rule string // its name
	What string // what was seen, and where
}

// String returns the rule's name and what was seen.
func (v Violation) String() string { return v.Rule + ": " + v.What }

// Rule describes a rule.
type Rule struct {
	Name    string // group/name
	Promise string // in a sentence
}

// rule is a Rule with the function that proves it.
type rule struct {
	Rule
	prove func(*rig)
}

// groups are all rules, in the order in which they build upon each other.
var groups = [][]rule{
	providerRules, connectRules, listenRules, messageRules, queueRules, localRules, rdmaRules, regionRules,
	appendRules, protectRules, wakeRules, closeRules, extensionRules, isolationRules, costRules,
}

func every(do func(*rule)) {
	for _, g := range groups {
		for i := range g {
			do(&g[i])
		}
	}
}

// Rules returns all rules in the order in which Run takes them.
func Rules() []Rule {
	var all []Rule
	every(func(r *rule) { all = append(all, r.Rule) })
	return all
}

// Run tests the provider: each rule is a subtest of its name.
func Run(t *testing.T, c Config) {
	c = c.withDefaults()
	for _, v := range c.strangers() {
		t.Error(v)
	}
	every(func(r *rule) {
		t.Run(r.Name, func(t *testing.T) {
			if why, waived := c.Waive[r.Name]; waived {
				t.Skip("waived: " + why)
			}
			o := c.try(r)
			for _, what := range o.violations {
				t.Error(what)
			}
			if o.skipped != "" && len(o.violations) == 0 {
				t.Skip(o.skipped)
			}
		})
	})
}

// Check tests the provider with the named rules, or with all if none is named, and returns what it violates.
func Check(c Config, names ...string) []Violation {
	c = c.withDefaults()
	found := c.strangers()
	for _, n := range names {
		if !slices.ContainsFunc(Rules(), func(r Rule) bool { return r.Name == n }) {
			found = append(found, Violation{n, "there is no such rule"})
		}
	}
	every(func(r *rule) {
		if _, waived := c.Waive[r.Name]; waived || len(names) > 0 && !slices.Contains(names, r.Name) {
			return
		}
		for _, what := range c.try(r).violations {
			found = append(found, Violation{r.Name, what})
		}
	})
	return found
}

func (c Config) withDefaults() Config {
	if !c.Addr.IsValid() {
		c.Addr = netip.MustParseAddrPort("127.0.0.1:0")
	}
	if c.Memory == nil {
		c.Memory = func(_ provider.Provider, n int) []byte { return make([]byte, n) }
	}
	if c.Wait <= 0 {
		c.Wait = 10 * time.Second
	}
	if c.Quiet <= 0 {
		c.Quiet = 20 * time.Millisecond
	}
	if c.Limit <= 0 {
		c.Limit = 2 * time.Minute
	}
	if c.Rounds <= 0 {
		c.Rounds = 400
	}
	return c
}

// strangers are the waivers for rules that do not exist.
func (c *Config) strangers() []Violation {
	known := make(map[string]bool)
	every(func(r *rule) { known[r.Name] = true })
	var found []Violation
	for name := range c.Waive {
		if !known[name] {
			found = append(found, Violation{name, fmt.Sprintf("waived (%s), but there is no such rule", c.Waive[name])})
		}
	}
	return found
}
