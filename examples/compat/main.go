// Command compat runs the suites that show what works over a SAN as it does over TCP, and writes docs/compat.md, the table
// of their results. Run it from anywhere in the repository:
//
//	go run ./examples/compat
//
// It takes a few minutes. Programs that are not installed, such as Redis or PostgreSQL, are reported as not run. The exit
// code is 1 if anything failed, or did not run.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	out := flag.String("o", "docs/compat.md", "`file` to write, relative to the root of the repository; - is standard output")
	only := flag.String("only", "", "run the suites whose program contains this `text`, and write to standard output")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "Compat runs the suites of docs/compat.md, which takes minutes, and writes that file. Flags:")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "compat: unexpected argument %q\n", flag.Arg(0))
		flag.Usage()
		os.Exit(2)
	}
	if *only != "" {
		*out = "-"
	}
	ok, err := run(*out, *only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "compat:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run writes the table, and reports whether everything passed.
func run(out, only string) (ok bool, err error) {
	root, err := moduleRoot()
	if err != nil {
		return false, err
	}
	var rows []row
	for _, s := range suites {
		if !strings.Contains(s.program, only) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s\n", s.program)
		rows = append(rows, s.run(root)...)
	}
	text := page(rows, host())
	if out == "-" {
		_, err = os.Stdout.Write(text)
	} else {
		err = os.WriteFile(filepath.Join(root, out), text, 0o644)
	}
	ok = len(rows) > 0
	for _, r := range rows {
		ok = ok && r.failed == nil && r.passed > 0
	}
	return ok, err
}

// moduleRoot is the directory of the module around the working directory.
func moduleRoot() (string, error) {
	out, err := exec.Command("go", "list", "-f", "{{.Module.Dir}}", "sansock/sannet").Output()
	if err != nil {
		return "", fmt.Errorf("not in the repository: %w", err)
	}
	return string(bytes.TrimSpace(out)), nil
}

// host says what the table was made on.
func host() string {
	out, _ := exec.Command("go", "env", "GOVERSION", "GOOS", "GOARCH").Output()
	kernel, _ := exec.Command("uname", "-r").Output()
	return strings.Join(strings.Fields(string(out)), " ") + ", kernel " + strings.TrimSpace(string(kernel))
}
