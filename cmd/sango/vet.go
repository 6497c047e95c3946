package main

import (
	"slices"
	"strings"
)

// checks are those that go test has vet make, in every release that is supported.
var checks = []string{
	"-atomic", "-directive", "-errorsas", "-ifaceassert", "-nilfunc", "-printf", "-stringintconv", "-tests",
}

// ofBuild are the flags of test that vet has too.
var ofBuild = []string{"asan", "msan", "race", "tags", "mod", "modfile"}

// vet runs vet on the packages that are to be tested, as go test would, but without the overlay:
// the folders of packages that there are in that alone are nowhere, and vet wants to look into
// them.
func vet(t *toolchain, a *arguments) error {
	flags := checks
	switch {
	case a.vet == "off":
		return nil
	case a.vet == "all":
		flags = nil
	case a.vet != "":
		flags = nil
		for name := range strings.SplitSeq(a.vet, ",") {
			flags = append(flags, "-"+name)
		}
	}
	args := append([]string{"vet"}, a.first...)
	args = append(args, flags...)
	rest := a.rest
	inPackages := false
	for len(rest) > 0 {
		flag, _, size, err := split(rest)
		if err != nil {
			return err
		}
		switch {
		case flag == "args":
			return run(t, args)
		case flag == "":
			inPackages = true
			args = append(args, rest[0])
		case inPackages:
			return run(t, args) // what follows is for the test
		case slices.Contains(ofBuild, flag):
			args = append(args, rest[:size]...)
		}
		rest = rest[size:]
	}
	return run(t, args)
}
