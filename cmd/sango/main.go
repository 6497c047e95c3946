// Sango builds any Go program so that its TCP connections and listeners go over the SAN, where
// there is one. Nothing of the program is changed: see docs/sango.md.
//
// Usage:
//
//	sango build|run|test|install [flags of go] [packages]
//	sango env [-dir folder]
//	sango version [binary]
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

const usage = `usage:
	sango build|run|test|install [flags and arguments of the go command]
		does what go does, and the program's TCP is over the SAN where it can be
	sango env [-dir folder]
		writes the overlay to a folder, and prints what other build systems need
	sango version [binary]
		prints the version of this program, or what a binary was built with

Programs read SANNET_PROVIDERS (none: TCP alone) and SANGO_TRACE (a file for the path of each connection).
`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err := command(os.Args[1], os.Args[2:]); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			os.Exit(max(exit.ExitCode(), 1)) // it has said why
		}
		fmt.Fprintln(os.Stderr, "sango:", err)
		os.Exit(1)
	}
}

func command(name string, args []string) error {
	switch name {
	case "build", "run", "test", "install":
		return build(name, args)
	case "env":
		return env(args)
	case "version":
		return version(args)
	case "toolexec":
		return toolexec(args)
	case "help", "-h", "-help", "--help":
		fmt.Print(usage)
		return nil
	}
	return fmt.Errorf("unknown command %q: see sango help", name)
}
