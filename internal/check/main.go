// Check keeps the code of this repository in a shape that a person can read. It looks at packages,
// without their tests:
//
//	go run ./internal/check ./session ./emu       fails where a package is too large, or upside down
//	go run ./internal/check -v ./session ./emu    the figures besides
//
// Sizes: no struct has more than 20 fields, no function more than 60 lines, no file more than 400.
// Comment lines of more than 100 columns are counted, and never fail.
//
// Layers: a package may say in its documentation how its files build upon each other, from the bottom up. It
// does so in the first block of code below the heading Layers:
//
//	// # Layers
//	//
//	// A file uses those above it in this list:
//	//
//	//	wire.go hello.go    messages as bytes
//	//	credit.go           who may send
//	//	conn.go *_unix.go   what an application sees
//
// A line is a layer: its files or patterns, then what they are for. Each file of the package is in
// one layer. A reference is one declaration of the package that a file of another layer uses, however
// often: a name, a field or a method. A reference to a layer further down in the list points up.
// Not more than one in ten may, and not more than one in ten of those to functions and methods. Files
// of one layer use each other freely.
//
// Locks: where fields of a struct say which mutex guards them, in a form that gVisor's checklocks
// reads, each field has a line of its own.
//
// # Layers
//
// Those of this program:
//
//	load.go objects.go              packages, and what their names stand for
//	sizes.go layers.go locks.go     what is looked at
//	main.go                         the command
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
)

// errFound says that problems were found, and printed.
var errFound = errors.New("problems found")

func main() {
	err := run(os.Args[1:], os.Stdout)
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errFound):
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(2)
	}
}

// run checks the packages that args name, and prints what it finds. Without packages it does nothing.
func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	verbose := flags.Bool("v", false, "print the figures of each package")
	tags := flags.String("tags", "", "build `tags`, separated by commas")
	if err := flags.Parse(args); err != nil || flags.NArg() == 0 {
		return err
	}
	packages, err := load(*tags, flags.Args())
	if err != nil {
		return err
	}
	var found error
	for _, p := range packages {
		s, l := sizesOf(p), layersOf(p)
		for _, problem := range slices.Concat(s.problems(), l.problems(), lockProblems(p)) {
			fmt.Fprintf(out, "%s: %s\n", p.name, problem)
			found = errFound
		}
		if *verbose {
			fmt.Fprintf(out, "%s:\n", p.name)
			s.print(out)
			l.print(out)
		}
	}
	return found
}
