package main

import (
	"fmt"
	"slices"
	"strings"
)

// boolean are the flags of the go command that take no value in the next argument. Others do.
var boolean = []string{"a", "n", "v", "x", "race", "msan", "asan", "work", "cover", "trimpath",
	"linkshared", "modcacherw", "i", "json", "c", "buildvcs", "benchmem", "failfast", "short", "fullpath", "artifacts"}

// arguments are those of the go command.
type arguments struct {
	dir      string   // of -C
	first    []string // -C, which has to come first
	rest     []string // everything else but -overlay, -toolexec and -vet
	overlay  string
	toolexec string
	vet      string // of -vet of test
}

// parse takes apart the arguments of a subcommand. What follows the package of run, or -args of
// test, is the program's.
func parse(name string, args []string) (*arguments, error) {
	a := &arguments{}
	for len(args) > 0 {
		arg := args[0]
		if ends(name, arg) {
			break
		}
		flag, value, size, err := split(args)
		if err != nil {
			return nil, err
		}
		switch flag {
		case "C":
			if len(a.rest) > 0 {
				return nil, fmt.Errorf("-C has to be the first flag")
			}
			a.dir, a.first = value, args[:size]
		case "overlay":
			a.overlay = value
		case "toolexec":
			a.toolexec = value
		case "vet":
			a.vet = value
		default:
			a.rest = append(a.rest, args[:size]...)
		}
		args = args[size:]
	}
	a.rest = append(a.rest, args...)
	return a, nil
}

// ends reports whether what follows is the program's, arg included.
func ends(name, arg string) bool {
	switch arg {
	case "-args", "--args", "--":
		return true
	}
	return name == "run" && !strings.HasPrefix(arg, "-")
}

// split returns the flag that args begin with, "" if they begin with none, its value, and how
// many arguments these are.
func split(args []string) (flag, value string, size int, err error) {
	flag, ok := strings.CutPrefix(args[0], "-")
	if !ok || flag == "" {
		return "", "", 1, nil
	}
	flag = strings.TrimPrefix(flag, "-")
	flag, value, ok = strings.Cut(flag, "=")
	if ok || slices.Contains(boolean, strings.TrimPrefix(flag, "test.")) {
		return flag, value, 1, nil
	}
	if len(args) == 1 {
		return "", "", 0, fmt.Errorf("flag needs an argument: %s", args[0])
	}
	return flag, args[1], 2, nil
}

// fromEnv takes the flags that GOFLAGS has and that a flag of ours would override.
func (a *arguments) fromEnv(goflags string) {
	// There are quotes where there are spaces, which these do not have.
	for f := range strings.FieldsSeq(goflags) {
		name, value, _ := strings.Cut(strings.TrimLeft(strings.Trim(f, `'"`), "-"), "=")
		switch {
		case name == "overlay" && a.overlay == "":
			a.overlay = value
		case name == "toolexec" && a.toolexec == "":
			a.toolexec = value
		case name == "vet" && a.vet == "":
			a.vet = value
		}
	}
}
